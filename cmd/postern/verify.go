package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/fault"
)

func verifyCommand() *cobra.Command {
	var watch bool
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check on a live database what must always be true of it",
		Long: trim(`
			Check the invariants of Postern, such as: a queue has at most one transaction in flight, a sender
			serves at most one queue, everything below the head has exactly one outcome. It only reads, and
			what it checks holds at every commit, so it may run while everything works. On a large database
			it reads much: give it a replica then.

			  DATABASE_URL=postgres://... postern verify
			  postern verify --watch --every 1m

			Where DATABASE_URL names several hosts and two of them take writes, it checks neither, and says so.

			Exit codes: 0 all of it is true, 1 something is not, 3 the database cannot be reached, 5 two servers
			take writes.`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asked, err := asJSON(cmd)
			if err != nil {
				return err
			}
			cfg, _, err := settings(cmd)
			if err != nil {
				return err
			}
			look := func(w io.Writer) error {
				found, err := app.Violations(cmd.Context(), cfg)
				if err != nil {
					return err
				}
				return printViolations(cmd, w, found, asked)
			}
			if watch {
				return watching(cmd, every, look)
			}
			return look(cmd.OutOrStdout())
		},
	}
	addSettings(cmd, nil, "database")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "check again and again until something is not true, or Ctrl-C")
	cmd.Flags().DurationVar(&every, "every", 10*time.Second, "with --watch: how often")
	return cmd
}

// printViolations prints the sentences of one look, or that all of it is true. The error says how many were found.
func printViolations(cmd *cobra.Command, w io.Writer, found []string, asJSON bool) error {
	switch {
	case asJSON:
		if found == nil {
			found = []string{}
		}
		if err := json.NewEncoder(w).Encode(map[string]any{"ok": len(found) == 0, "violations": found}); err != nil {
			return err
		}
	case len(found) == 0:
		fmt.Fprintln(w, "all of it is true")
	default:
		for _, f := range found {
			paperOf(cmd).indented(w, "-", 2, clean(f))
		}
	}
	if len(found) == 0 {
		return nil
	}
	return &failure{
		exitBad,
		"stop `postern work`, keep the database as it is, and report this",
		errors.New(fault.Many(len(found), "violation")),
	}
}
