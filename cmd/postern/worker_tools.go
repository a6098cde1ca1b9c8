package main

import (
	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/demo"
)

func workerToolsCommand() *cobra.Command {
	var address string
	var attached bool
	cmd := &cobra.Command{
		Use:   "tools",
		Short: "Two tools to try the leader with: they add numbers",
		Long: trim(`
			Serve two tools over HTTP: dev.postern.add@1 below /add, and dev.postern.flaky@1 below /flaky, which
			fails at the first call with an input. The first line is the address; with it they are registered:

			  postern api PUT /tools/dev.postern.add@1 -f - <<< '{"url": "http://127.0.0.1:8090/add"}'`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := attach(cmd.Context(), attached)
			defer stop()
			return serveDevnet(ctx, cmd, address, demo.ToolHandler(), nil)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&address, "listen", "127.0.0.1:0", "address to listen on")
	f.BoolVar(&attached, "attached", false, "end when standard input does")
	f.MarkHidden("attached")
	return cmd
}
