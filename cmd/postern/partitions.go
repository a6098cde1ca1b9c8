package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/pg/merge"
)

func partitionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "partitions",
		Short: "Merge the partitions of an old database",
		Long: trim(`
			Transactions and their outcomes lie in partitions of one day up to a quarter: a thirtieth of the
			retention, or quarters where all is kept. Each process makes those of the coming days. They are
			at most 60, whatever the age of the database, unless it comes from a time when each day had one,
			or its retention was changed. merge makes few of many.`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return usage(cmd, errors.New("which way? want merge")) },
	}
	cmd.AddCommand(partitionsMerge())
	return cmd
}

func partitionsMerge() *cobra.Command {
	var dry bool
	var width string
	cmd := &cobra.Command{
		Use:   "merge",
		Short: "Make few wide partitions of many narrow ones, while no process runs",
		Long: trim(`
			Copy the rows of neighbouring partitions into one. Stop postern serve and postern work first: it
			refuses to run beside them. Each new partition is one commit, and needs as much disk again as
			it holds. A merge that was stopped or killed has lost nothing: run it again, and it goes on.
			It runs as the owner of the tables, the role that migrates.

			  postern partitions merge --dry-run
			  postern partitions merge --width month`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if width != "" && !slices.Contains(merge.Widths, width) {
				return usage(cmd, fmt.Errorf("--width is %q: want %s", width, strings.Join(merge.Widths, ", ")))
			}
			asked, err := asJSON(cmd)
			if err != nil {
				return err
			}
			return withDatabase(cmd, func(m app.Migrations) error {
				p, err := m.Merge(cmd.Context(), width, dry, func(g merge.Group, rows int64, took time.Duration) {
					if !asked {
						says(cmd)(fmt.Sprintf("%s: %d partitions of each table are one, with %d rows, after %s",
							g, g.Spans, rows, took.Round(time.Millisecond)))
					}
				})
				if err != nil {
					return err
				}
				if asked {
					return printJSON(cmd, p)
				}
				sayMerged(cmd, p, dry)
				return nil
			})
		},
	}
	addSettings(cmd, nil, "database")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "say what would be merged, and change nothing")
	cmd.Flags().StringVar(&width, "width", "",
		"of the partitions to be: "+strings.Join(merge.Widths, ", ")+"; that of the retention, if it is not given")
	return cmd
}

// sayMerged tells people what a merge did, or would do.
func sayMerged(cmd *cobra.Command, p merge.Plan, dry bool) {
	if dry && len(p.Groups) > 0 {
		rows := [][]string{{"first day", "last day", "partitions", "rows", "MiB"}}
		for _, g := range p.Groups {
			rows = append(rows, []string{g.First.Format(time.DateOnly), g.Last.Format(time.DateOnly),
				fmt.Sprint(g.Spans), fmt.Sprint(g.Rows), fmt.Sprint(g.Bytes >> 20)})
		}
		printTable(cmd, rows)
	}
	verb := "there were"
	if dry {
		verb = "there are"
	}
	says(cmd)(fmt.Sprintf("%s %d partitions of each table; by the width %s they are %d",
		verb, p.Before, p.Width, p.After))
}
