package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/demo"
)

const demoLong = `
	Run everything, as postern dev does, and besides a devnet and its worker; post the samples of
	testdata/transactions over HTTP, show queues and senders until all have ended, sum up, and keep
	serving until Ctrl-C. On the way the devnet drops transactions and takes a block out again.

	The exit code is 0 if every sample ended as its file says, and is on the ledger exactly as often
	as its outcome says, else 1. -o json prints the summary as one line.

	With --processor it sends batches of messages to processors instead: atomic and not, retried,
	confirmed by a callback, expired, evicted. The ledger must have seen what each result says.

	With --leader requests on the devnet are events that call tools in two processes, one whose calls are
	signed and one that is a plain script; what the tools answer goes back to the devnet. One tool fails
	at first, one breaks its schema.

	With --flow three flows of Python scripts are executed by runners that are processes of their own, without
	a sandbox, since each script appends to a file: a diamond in which one job fails twice, one waits for an
	approval, and the runner of one is killed with -9; one that a poisonous job ends; and one whose middle
	another installation executes, with a database of its own that is thrown away. The summary compares the
	file with what is recorded.

	With --domain three installations, each with a database of its own, share a domain of private tokens: the
	ledger sees hashes of them alone, and a notary endorses each transfer. One is parked, one is refused at
	first, the ledger reverts two. At a boundary of blocks another installation coordinates, and in mid-run
	the one that does is killed with -9 and started again. Receipts, ledger and balances must agree.`

func demoCommand() *cobra.Command {
	var ephemeral, yes, once bool
	var which demos
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run everything, post sample transactions and watch them go out",
		Long:  trim(demoLong),
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asked, err := asJSON(cmd)
			if err != nil {
				return err
			}
			var log *app.HeldLog
			held := func(c app.Config, f *os.File) (l *slog.Logger) {
				l, log = app.LoggerHeld(c, f)
				return l
			}
			d, err := newDev(cmd, app.DevOptions{Ephemeral: ephemeral, Yes: yes}, held)
			if log != nil {
				defer log.Release("\nthe log:\n")
			}
			if err != nil {
				return err
			}
			run, err := which.chosen(cmd)
			if err != nil {
				return usage(cmd, err)
			}
			return runDemo(cmd, d, log, run, once, asked)
		},
	}
	addDevSettings(cmd, &ephemeral, &yes)
	cmd.Flags().BoolVar(&which.processors, "processor", false, "batches of processors instead of transactions")
	cmd.Flags().BoolVar(&which.events, "leader", false, "events and tools instead of transactions")
	cmd.Flags().BoolVar(&which.flows, "flow", false, "flows of scripts instead of transactions")
	cmd.Flags().BoolVar(&which.domain, "domain", false,
		"a domain of three installations instead of transactions")
	cmd.Flags().BoolVar(&once, "once", false, "end after the summary")
	return cmd
}

// demos says which one is asked for; transactions if none.
type demos struct{ processors, events, flows, domain bool }

// chosen is what the demo runs.
func (d demos) chosen(cmd *cobra.Command) (demonstration, error) {
	asked := []demonstration{}
	for _, one := range []struct {
		asked bool
		run   demonstration
	}{
		{d.processors, demo.RunProcessors},
		{d.events, runLeader},
		{d.flows, func(ctx context.Context, c demo.Config) (*demo.Summary, error) { return runFlows(ctx, cmd, c) }},
		{d.domain, func(ctx context.Context, c demo.Config) (*demo.Summary, error) { return runDomain(ctx, cmd, c) }},
	} {
		if one.asked {
			asked = append(asked, one.run)
		}
	}
	switch len(asked) {
	case 0:
		return demo.Run, nil
	case 1:
		return asked[0], nil
	}
	return nil, errors.New("--processor, --leader, --flow and --domain are demos of their own: choose one")
}

// errServer is the cause when the installation ended under the demo.
var errServer = errors.New("the server ended")

// errUnexpected is how the demo ends if the samples did not end well. Their rows stay, so that a user can look at them.
var errUnexpected = errors.New("samples did not end as they should")

// runLeader runs the demo of the leader with tools of its own.
func runLeader(ctx context.Context, c demo.Config) (*demo.Summary, error) {
	tools, stop, err := startTools(ctx, c.Key)
	if err != nil {
		return nil, err
	}
	defer stop()
	c.Tools = tools
	return demo.RunLeader(ctx, c)
}

// demonstration is what the demo runs: transactions, or processors.
type demonstration func(context.Context, demo.Config) (*demo.Summary, error)

// runDemo runs an installation with samples on it. Its log appears when they have ended.
func runDemo(cmd *cobra.Command, d *app.Dev, log *app.HeldLog, run demonstration, once, asJSON bool) error {
	server, stopServer := context.WithCancel(context.WithoutCancel(cmd.Context()))
	ctx, fail := context.WithCancelCause(cmd.Context())
	ended := make(chan error, 1)
	go func() {
		err := d.Run(server)
		fail(errServer)
		ended <- err
	}()
	net, err := startDevnet(ctx, false)
	if err == nil {
		defer net.stop() // after the sequencer, whose calls it answers
		err = samples(ctx, cmd, d, net, run, once, asJSON)
		log.Release("\nmeanwhile the log said (the samples want some of it):\n")
	}
	if !once && ctx.Err() == nil && (err == nil || errors.Is(err, errUnexpected)) {
		fmt.Fprintf(cmd.ErrOrStderr(), "\nserving at %s until Ctrl-C\n", d.URL())
		<-ctx.Done()
	}
	if cmd.Context().Err() != nil && errors.Is(err, context.Canceled) {
		err = errors.New("stopped before all samples had ended")
		if !once {
			fmt.Fprintln(cmd.ErrOrStderr(), err)
			err = nil
		}
	}
	stopServer()
	return errors.Join(err, <-ended)
}

// samples runs the samples through d and a devnet, and prints the summary. An error says that they
// could not be run, or how many did not end as they should.
func samples(ctx context.Context, cmd *cobra.Command, d *app.Dev, net *devnetProcesses, run demonstration, once, asJSON bool) error {
	columns, _, terminal := app.Terminal(os.Stderr)
	fmt.Fprintf(cmd.ErrOrStderr(), "API %s, worker %s, devnet %s (a block every %s)\n\n", d.URL(), net.worker, net.ledger, demo.BlockEvery)
	summary, err := run(ctx, demo.Config{API: d.URL(), Worker: net.worker, Ledger: net.ledger, Name: demo.RunName(time.Now()), Key: d.PublicKey(),
		Out: cmd.ErrOrStderr(), Redraw: terminal, Columns: columns})
	if err != nil {
		return err
	}
	if asJSON {
		err = printJSON(cmd, summary)
	} else {
		summary.Print(cmd.OutOrStdout())
	}
	if !once {
		fmt.Fprintf(cmd.ErrOrStderr(), "\nlook further:\n  %s\n", strings.Join(summary.Further(d.URL(), d.Database), "\n  "))
		fmt.Fprintf(cmd.ErrOrStderr(), "\nthree things to try:\n  %s\n",
			strings.Join(summary.Try(os.Args[0], d.URL(), d.Database), "\n  "))
	}
	if err == nil && summary.Unexpected > 0 {
		err = fmt.Errorf("%d of %d %w", summary.Unexpected, summary.Transactions, errUnexpected)
	}
	return err
}
