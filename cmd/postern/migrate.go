package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/app"
)

func migrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate up|down|status",
		Short: "Bring a database to the migrations of this program",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usage(cmd, errors.New("which way? want up, down or status"))
		},
	}
	cmd.AddCommand(migrateUp(), migrateDown(), migrateStatus())
	return cmd
}

func migrateUp() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Apply what is missing; several processes may do so at once",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDatabase(cmd, func(m app.Migrations) error {
				return steps(cmd, m.Up, "nothing to do: the database has every migration of this program")
			})
		},
	}
	addSettings(cmd, nil, "database")
	return cmd
}

func migrateDown() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Take everything back: every transaction and its history are gone",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDatabase(cmd, func(m app.Migrations) error {
				if !yes {
					return &failure{exitUsage, "postern migrate down --yes",
						fmt.Errorf("this drops the schemas postern and river of %s with every transaction in them",
							m.Name())}
				}
				return steps(cmd, m.Down, "nothing to do: the database has nothing of postern")
			})
		},
	}
	addSettings(cmd, nil, "database")
	cmd.Flags().BoolVar(&yes, "yes", false, "yes, drop all of it")
	return cmd
}

func migrateStatus() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "List the migrations; exit code 1 if the database and this program differ",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asked, err := asJSON(cmd)
			if err != nil {
				return err
			}
			return withDatabase(cmd, func(m app.Migrations) error {
				list, err := m.Status(cmd.Context())
				if err != nil {
					return err
				}
				if asked {
					if err := printJSON(cmd, map[string]any{"items": list}); err != nil {
						return err
					}
				} else {
					rows := [][]string{{"migration", "applied"}}
					for _, s := range list {
						applied := "missing"
						if s.AppliedAt != nil {
							applied = s.AppliedAt.UTC().Format(time.RFC3339)
						}
						if s.Unknown {
							applied += " (unknown to this program)"
						}
						rows = append(rows, []string{s.Name, applied})
					}
					printTable(cmd, rows)
				}
				return m.Check(cmd.Context())
			})
		},
	}
	addSettings(cmd, nil, "database")
	return cmd
}

// withDatabase calls f with the migrations of the configured database.
func withDatabase(cmd *cobra.Command, f func(app.Migrations) error) error {
	cfg, _, err := settings(cmd)
	if err != nil {
		return err
	}
	m, err := app.NewMigrations(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	return f(m)
}

// steps prints a line per step that f does, or that there was nothing to do.
func steps(cmd *cobra.Command, f func(context.Context, func(string)) error, nothing string) error {
	done, say := false, says(cmd)
	err := f(cmd.Context(), func(line string) { done = true; say(line) })
	if err == nil && !done {
		say(nothing)
	}
	return err
}

// says prints a line of progress.
func says(cmd *cobra.Command) func(string) {
	return func(line string) { fmt.Fprintln(cmd.OutOrStdout(), line) }
}
