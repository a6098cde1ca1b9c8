package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/chainsim"
	"github.com/postern-dev/postern/internal/demo"
)

// workerCommand groups the workers that come with Postern.
func workerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "worker chain|devnet",
		Short: "Run a worker that comes with Postern: a simulated chain, or that of the devnet",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usage(cmd, errors.New("which worker? want chain or devnet"))
		},
	}
	cmd.AddCommand(chainCommand(), workerDevnetCommand())
	return cmd
}

func chainCommand() *cobra.Command {
	var address string
	var every time.Duration
	var attached bool
	cmd := &cobra.Command{
		Use:   "chain",
		Short: "A worker with a small chain inside, for trying things out",
		Long: trim(`
			Serve the worker contract in front of a simulated chain with accounts, nonces, a pool and
			blocks. What happens to a transaction is told by the member "simulate" of its data; the files
			in testdata/transactions use all of it. State is in memory. The first line is its address.`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := context.WithCancel(cmd.Context())
			defer stop()
			if attached { // whoever started us holds the other end: we end with it, however it ends
				go func() {
					io.Copy(io.Discard, os.Stdin)
					stop()
				}()
			}
			return serveChain(ctx, cmd, address, every)
		},
	}
	cmd.Flags().StringVar(&address, "listen", "127.0.0.1:0", "address to listen on")
	cmd.Flags().DurationVar(&every, "block-every", demo.BlockEvery, "time between blocks")
	cmd.Flags().BoolVar(&attached, "attached", false, "end when standard input does")
	cmd.Flags().MarkHidden("attached")
	return cmd
}

// serveChain runs a chain and its worker until ctx ends.
func serveChain(ctx context.Context, cmd *cobra.Command, address string, every time.Duration) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	sim := chainsim.New(chainsim.Config{BlockEvery: every, Seed: 1})
	server := &http.Server{Handler: sim.Handler(), ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { server.Close() })
	made := make(chan error, 1)
	go func() { made <- sim.Run(ctx) }()
	if _, err := fmt.Fprintf(cmd.OutOrStdout(), "http://%s\n", l.Addr()); err != nil {
		return err
	}
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-made
}

// startChain starts the chain as a process of its own and returns its address; stop ends it.
func startChain(ctx context.Context) (url string, stop func(), err error) {
	return app.StartChild(ctx, "worker", "chain", "--attached")
}
