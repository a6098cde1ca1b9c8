package main

import (
	"crypto/ed25519"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/demo"
	"github.com/postern-dev/postern/internal/remote"
)

func workerToolsCommand() *cobra.Command {
	var address, signer string
	var attached bool
	cmd := &cobra.Command{
		Use:   "tools",
		Short: "Two tools to try events with: they add numbers",
		Long: trim(`
			Serve two tools over HTTP: dev.postern.add@1 below /add, and dev.postern.flaky@1 below /flaky, which
			fails at the first call with an input. The first line is the address; with it they are registered:

			  postern tool put dev.postern.add@1 http://127.0.0.1:8090/add

			With --key they answer only calls that this key has signed, and want to be called so.`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var key ed25519.PublicKey
			if signer != "" {
				var err error
				if key, err = remote.ParsePublicKey(signer); err != nil {
					return usage(cmd, err)
				}
			}
			ctx, stop := attach(cmd.Context(), attached)
			defer stop()
			return serveDevnet(ctx, cmd, address, demo.ToolHandler(key), nil)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&address, "listen", "127.0.0.1:0", "address to listen on")
	f.StringVar(&signer, "key", "", "public key of who may call, whpk_...; empty: anybody")
	f.BoolVar(&attached, "attached", false, "end when standard input does")
	f.MarkHidden("attached")
	return cmd
}
