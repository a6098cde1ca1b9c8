package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/devnet"
	"github.com/postern-dev/postern/internal/devnet/ledger"
)

// devnetAddress is where a devnet listens unless it is told otherwise.
const devnetAddress = "127.0.0.1:8541"

const devnetLong = `
	Run a development ledger over HTTP: accounts, ed25519-signed transactions with nonces and fees,
	replacement by a higher fee, a pool, blocks, reorgs of depth 1 or 2, and an event log. What it
	answered survives kill -9. It has no authentication, and a faucet: keep it to yourself.
	The first line is its address. Then, for instance:

	  postern devnet keys acct-1 acct-2 --fund 1000000      make keys and give them money
	  postern worker devnet                                 the worker that signs with them
	  curl URL/health                                       height, pool, sum of all fees
	  curl URL/blocks/head                                  the last block
	  curl "URL/events?limit=10"                            what is final; ?cursor= to go on, inclusive
	  curl -X POST URL/reorg -d '{"depth":2}'               take the last two blocks out
	  curl -X PUT URL/faults -d '{"halt":true}'             no more blocks, until PUT with {}

	Faults, with chances from 0 to 1: refuse (answers 503), slow ("200ms"), lose (does it and closes the
	connection), wrong (does it and answers nonsense), drop (out of the pool), halt, reorg_every (blocks),
	reorg_depth, reorg_lose (chance that a transaction does not return). They end with the process.

	A transaction is final three blocks deep: with reorgs, dispatchers want confirmations 3.`

// devnetRun are the flags of devnet.
type devnetRun struct {
	address, data       string
	ephemeral, attached bool
	ledger.Config
}

func devnetCommand() *cobra.Command {
	var r devnetRun
	cmd := &cobra.Command{
		Use:   "devnet",
		Short: "Run a small ledger to submit to: accounts, nonces, fees, blocks, reorgs",
		Long:  trim(devnetLong),
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return r.run(cmd) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&r.address, "listen", devnetAddress, "address to listen on")
	f.DurationVar(&r.BlockEvery, "block-every", 500*time.Millisecond, "time between blocks; 0: by POST /blocks alone")
	f.StringVar(&r.data, "data", "", "directory of its journal ($XDG_STATE_HOME/postern/devnet/ledger)")
	f.BoolVar(&r.ephemeral, "ephemeral", false, "keep nothing")
	f.IntVar(&r.Faults.ReorgEvery, "reorg-every", 0, "a reorg after so many blocks; 0: none")
	f.IntVar(&r.Faults.ReorgDepth, "reorg-depth", 0, "how deep it goes, 1 or 2; 0: by chance")
	f.Float64Var(&r.Faults.ReorgLose, "reorg-lose", 0, "chance that a transaction does not return from it")
	f.Float64Var(&r.Faults.Drop, "drop", 0, "chance, with each block, that a transaction is dropped from the pool")
	f.Uint64Var(&r.Seed, "seed", 1, "a number from which chances are drawn: the same one, the same chances")
	f.BoolVar(&r.attached, "attached", false, "end when standard input does")
	f.MarkHidden("attached")
	cmd.AddCommand(devnetKeysCommand())
	return cmd
}

// run serves the ledger until it is told to stop.
func (r *devnetRun) run(cmd *cobra.Command) error {
	if r.BlockEvery < 0 {
		return usage(cmd,
			errors.New("--block-every is negative: want a duration, or 0 for blocks by POST /blocks alone"))
	}
	var err error
	if !r.ephemeral {
		if r.Data, err = devnetDir(r.data, "ledger"); err != nil {
			return err
		}
	}
	l, err := ledger.Open(r.Config)
	var refused *devnet.Refusal
	if errors.As(err, &refused) {
		return usage(cmd, err)
	}
	if err != nil {
		return err
	}
	ctx, stop := attach(cmd.Context(), r.attached)
	defer stop()
	return errors.Join(serveDevnet(ctx, cmd, r.address, l.Handler(), l.Run), l.Close())
}

// devnetDir is a directory of the devnet and its worker: the one that was asked for, or one where this
// user's programs keep their state. It is made if it is missing.
func devnetDir(asked, name string) (string, error) {
	if asked == "" {
		state := os.Getenv("XDG_STATE_HOME")
		if state == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return "", fmt.Errorf("no state directory: set XDG_STATE_HOME or HOME, or name a directory: %w", err)
			}
			state = filepath.Join(home, ".local", "state")
		}
		asked = filepath.Join(state, "postern", "devnet", name)
	}
	return asked, os.MkdirAll(asked, 0o700)
}

// attach ends ctx when standard input ends, if attached: the process that started us holds the other end of it.
func attach(ctx context.Context, attached bool) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancel(ctx)
	if attached {
		go func() {
			io.Copy(io.Discard, os.Stdin)
			stop()
		}()
	}
	return ctx, stop
}

// serveDevnet prints the address, serves until ctx ends, and lets calls in flight end. run, if there is
// one, runs beside it; its error ends the serving.
func serveDevnet(ctx context.Context, cmd *cobra.Command, address string, handler http.Handler,
	run func(context.Context) error) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second}
	ran, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		defer stop()
		if run == nil {
			<-ctx.Done()
			ran <- nil
			return
		}
		ran <- run(ctx)
	}()
	go func() {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		if server.Shutdown(grace) != nil {
			server.Close()
		}
		closed <- nil
	}()
	if _, err := fmt.Fprintf(cmd.OutOrStdout(), "http://%s\n", l.Addr()); err != nil {
		stop()
	}
	err = server.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	stop()
	<-closed
	return errors.Join(err, <-ran)
}
