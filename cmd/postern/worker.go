package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// workerCommand groups the workers that come with Postern.
func workerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "worker devnet|tools",
		Short: "Run a worker that comes with Postern: that of the devnet, or tools to try",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usage(cmd, errors.New("which worker? want devnet or tools"))
		},
	}
	cmd.AddCommand(workerDevnetCommand(), workerToolsCommand())
	return cmd
}
