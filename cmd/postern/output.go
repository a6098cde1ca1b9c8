package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/app"
)

// asJSON says whether the command is to print JSON: as -o or POSTERN_OUTPUT say, else if its output is
// no terminal and pipes says that JSON is what a pipe wants.
func asJSON(cmd *cobra.Command, pipes bool) (bool, error) {
	o, _ := cmd.Flags().GetString("output")
	if o == "" {
		o = os.Getenv("POSTERN_OUTPUT")
	}
	switch o {
	case "json":
		return true, nil
	case "table":
		return false, nil
	case "":
		_, _, terminal := app.Terminal(os.Stdout)
		return pipes && !terminal, nil
	}
	return false, usage(cmd, errors.New("-o "+o+": want table or json"))
}

// printJSON writes v as one line.
func printJSON(cmd *cobra.Command, v any) error {
	enc := json.NewEncoder(cmd.OutOrStdout())
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printTable writes rows in columns.
func printTable(cmd *cobra.Command, rows [][]string) {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 {
				fmt.Fprint(w, "\t")
			}
			fmt.Fprint(w, cell)
		}
		fmt.Fprintln(w)
	}
	w.Flush()
}
