package main

import (
	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/app"
)

// groups are all groups of settings.
var groups = []string{"database", "http", "work", "metrics", "stop", "log", "dev"}

func configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the effective settings and where each comes from",
		Long: trim(`
			Print the effective settings and where each comes from: a flag beats the environment, which
			beats the default. Passwords are masked. DATABASE_URL_FILE names a file that holds DATABASE_URL.`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asked, err := asJSON(cmd)
			if err != nil {
				return err
			}
			_, list, err := settings(cmd)
			if err != nil {
				return err
			}
			if asked {
				return printJSON(cmd, map[string][]app.Setting{"items": list})
			}
			rows := [][]string{{"variable", "value", "origin"}}
			for _, s := range list {
				rows = append(rows, []string{s.Env, s.Value, s.Origin})
			}
			printTable(cmd, rows)
			return nil
		},
	}
	addSettings(cmd, nil, groups...)
	return cmd
}
