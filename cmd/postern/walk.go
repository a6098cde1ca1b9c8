package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/leader"
)

func walkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "walk",
		Short: "Judge definitions of walks: graphs of tools",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(walkValidateCommand())
	return cmd
}

func walkValidateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE",
		Short: "Say whether a walk can run, or which vertex and port is in the way",
		Long: trim(`
			Judge the definition of a walk in FILE (- for standard input), as POST /walks:validate does: every
			input port gets exactly one value however the walk begins, loops have an end and do not nest.
			The first check that fails is told, with vertex and port. No server is needed.

			Exit codes: 0 it can run, 1 it cannot, 2 FILE cannot be read.`),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			asked, err := asJSON(cmd)
			if err != nil {
				return err
			}
			from := "@" + args[0]
			if args[0] == "-" {
				from = "-"
			}
			b, err := content(cmd, from)
			if err != nil {
				return usage(cmd, err)
			}
			var w leader.Walk
			dec := json.NewDecoder(bytes.NewReader(b))
			dec.DisallowUnknownFields()
			if err = dec.Decode(&w); err == nil && dec.Decode(&struct{}{}) != io.EOF {
				err = errors.New("something stands behind the document")
			}
			if err != nil {
				return fmt.Errorf("%s is no definition of a walk: %w", args[0], err)
			}
			if err := w.Validate(); err != nil {
				return err
			}
			if asked {
				return printJSON(cmd, map[string]any{"valid": true, "vertices": len(w.Vertices),
					"edges": len(w.Edges), "entry_groups": w.Groups()})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "valid: %d vertices, %d edges; begins as %s\n", len(w.Vertices),
				len(w.Edges), strings.Join(w.Groups(), ", "))
			return nil
		},
	}
}
