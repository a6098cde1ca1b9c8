package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/machine"
	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/processor"
	"github.com/postern-dev/postern/internal/sequencer"
)

func machinesCommand() *cobra.Command {
	var mermaid, write bool
	cmd := &cobra.Command{
		Use:   "machines [NAME]",
		Short: "Print the state machines",
		Long: trim(`
			Print the state machines: the same tables that decide, that the database checks and that the
			API lists. Without NAME all of them.`),
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			tables, err := pick(args)
			if err != nil {
				return err
			}
			asked, err := asJSON(cmd)
			switch {
			case err != nil:
				return err
			case write:
				return writePages(cmd)
			case asked:
				return printJSON(cmd, map[string]any{"items": tables})
			}
			for i, t := range tables {
				if i > 0 {
					fmt.Fprintln(cmd.OutOrStdout())
				}
				if mermaid {
					fmt.Fprint(cmd.OutOrStdout(), machine.Mermaid(t))
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s, as in %s\n", t.Name, t.Follows)
				rows := [][]string{{"from", "event", "if", "to", "do"}}
				for _, r := range t.Rules {
					from := r.From
					if from == machine.Start {
						from = machine.Outside
					}
					rows = append(rows, []string{from, r.On, r.When, r.To, strings.Join(r.Do, ", ")})
				}
				printTable(cmd, rows)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&mermaid, "mermaid", false, "as Mermaid state diagrams")
	cmd.Flags().BoolVar(&write, "write", false, "write the pages beside the code; in a checkout of Postern")
	return cmd
}

// pick returns the tables of that name, or all.
func pick(args []string) ([]machine.Table, error) {
	tables := slices.Concat(sequencer.Tables(), leader.Tables(), processor.Tables(), flow.Tables(), message.Tables(),
		coord.Tables())
	if len(args) == 0 {
		return tables, nil
	}
	var names []string
	for _, t := range tables {
		names = append(names, t.Name)
	}
	i := slices.Index(names, args[0])
	if i < 0 {
		return nil, fault.New(fault.NotFound, "not_found", "there is no machine %q: want one of %s",
			fault.Clip(args[0]), strings.Join(names, ", "))
	}
	return tables[i : i+1], nil
}

// pages says which tables are told on which page beside the code.
var pages = []struct {
	path     string
	tables   func() []machine.Table
	meanings map[string]string
}{
	{"internal/sequencer/machine.md", sequencer.Tables, sequencer.Meanings},
	{"internal/leader/machine.md", leader.Tables, leader.Meanings},
	{"internal/processor/machine.md", processor.Tables, processor.Meanings},
	{"internal/flow/machine.md", flow.Tables, flow.Meanings},
	{"internal/message/machine.md", message.Tables, message.Meanings},
}

// writePages renders every page into the checkout that the working directory is the root of.
func writePages(cmd *cobra.Command) error {
	for _, p := range pages {
		if _, err := os.Stat(filepath.Dir(p.path)); err != nil {
			return usage(cmd,
				fmt.Errorf("--write wants the root of a checkout of Postern as working directory: %w", err))
		}
		text, err := machine.Markdown(p.tables(), p.meanings)
		if err != nil {
			return err
		}
		if err := os.WriteFile(p.path, []byte(text), 0o644); err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), p.path)
	}
	return nil
}
