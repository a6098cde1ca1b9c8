package main

import (
	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/app"
)

func workCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "work",
		Short: "Dispatch: lease queues and call workers (production)",
		Long: trim(`
			Dispatch what was posted: lease ready queues together with free senders, call their workers,
			and see each transaction through to its end. Run as many of these as you like; a queue is
			always in the hands of one of them. They serve no API.`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runApp(cmd, app.Role{Work: true, Version: version()}, app.WorkDefaults)
		},
	}
	addSettings(cmd, app.WorkDefaults, "database", "work", "metrics", "stop", "log")
	return cmd
}
