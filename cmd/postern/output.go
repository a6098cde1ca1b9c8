package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"
)

// asJSON says whether the command is to print JSON: if -o or POSTERN_OUTPUT say so. What a command prints does not
// depend on whether a terminal or a pipe reads it.
func asJSON(cmd *cobra.Command) (bool, error) {
	o, _ := cmd.Flags().GetString("output")
	if o == "" {
		o = os.Getenv("POSTERN_OUTPUT")
	}
	switch o {
	case "json":
		return true, nil
	case "table", "":
		return false, nil
	}
	return false, usage(cmd, fmt.Errorf("-o (POSTERN_OUTPUT) is %q: want table or json", clip(o, 64)))
}

// printJSON writes v as one line.
func printJSON(cmd *cobra.Command, v any) error {
	enc := json.NewEncoder(cmd.OutOrStdout())
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printTable writes rows in columns; the first row has the heads. The last column is wrapped where the paper is narrow.
func printTable(cmd *cobra.Command, rows [][]string) {
	var columns []column
	for i, head := range rows[0] {
		columns = append(columns, column{
			head: head,
			cell: func(r record) string { return r.text(strconv.Itoa(i)) },
			tail: i == len(rows[0])-1,
		})
	}
	var list []record
	for _, row := range rows[1:] {
		r := record{}
		for i, cell := range row {
			r[strconv.Itoa(i)] = cell
		}
		list = append(list, r)
	}
	paperOf(cmd).table(cmd.OutOrStdout(), columns, list)
}
