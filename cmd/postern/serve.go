package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/app"
)

func serveCommand() *cobra.Command {
	var working bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the API (production)",
		Long: trim(`
			Serve the API on a database that has exactly this program's migrations. With --work the same
			process also dispatches; otherwise run postern work beside it.

			On SIGTERM readiness drops, and queues without a call in flight are handed back. For the drain delay
			everything is still answered, posts included, until a proxy has noticed; then the port is closed,
			requests and calls in flight get the grace, and the exit code is 0. A second SIGTERM ends the process at
			once.`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			defaults := map[string]string{}
			if working {
				defaults = app.WorkDefaults
			}
			return runApp(cmd, app.Role{Serve: true, Work: working, Version: version()}, defaults)
		},
	}
	addSettings(cmd, nil, "database", "http", "work", "metrics", "stop", "log")
	cmd.Flags().BoolVar(&working, "work", false, "dispatch in the same process (the grace is 30s then)")
	return cmd
}

// runApp builds and runs a process of the given role.
func runApp(cmd *cobra.Command, role app.Role, defaults map[string]string) error {
	cfg, _, err := settings(cmd, defaults)
	if err != nil {
		return err
	}
	a, err := app.New(cmd.Context(), cfg, role, app.Logger(cfg, os.Stderr))
	if err != nil {
		return err
	}
	return a.Run(cmd.Context())
}
