package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/bench"
)

func benchCommand() *cobra.Command {
	b := &bench.E2E{}
	var kept bool
	cmd := &cobra.Command{
		Use:   "bench [e2e]",
		Short: "Measure: load over HTTP on a durable database, checked, as one JSON line",
		Long: trim(`
			Measure Postern as its users meet it. The scenario e2e posts transactions of many queues over
			HTTP while they are dispatched to a worker that does nothing, and counts until the last outcome
			is recorded. The database is an ephemeral one with durable commits, or the one that
			DATABASE_URL names. Each run is checked: what was lost, doubled or out of order prints no rate.

			The result is one JSON line; on a terminal a table. Rates are transactions a second (the median
			of the runs), times are milliseconds. Compare ratios of one run, not rates of two machines.`),
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && args[0] != "e2e" {
				return usage(cmd, fmt.Errorf("there is no scenario %q: want e2e", args[0]))
			}
			asked, err := asJSON(cmd, true)
			if err != nil {
				return err
			}
			return runBench(cmd, b, kept, asked)
		},
	}
	addSettings(cmd, devDefaults(), groups...)
	cmd.Flags().BoolVar(&kept, "kept", false, "use the kept development database instead of an ephemeral one")
	cmd.Flags().IntVar(&b.Queues, "queues", 1000, "queues")
	cmd.Flags().IntVar(&b.Depth, "depth", 10, "transactions per queue")
	cmd.Flags().IntVar(&b.Connections, "connections", 64, "connections that post")
	cmd.Flags().IntVar(&b.Runs, "runs", 5, "runs; the first one also warms up")
	return cmd
}

func runBench(cmd *cobra.Command, b *bench.E2E, kept, asJSON bool) error {
	if b.Queues < 1 || b.Depth < 1 || b.Connections < 1 || b.Runs < 1 {
		return usage(cmd, errors.New("queues, depth, connections and runs are at least 1"))
	}
	cfg, _, err := settings(cmd, devDefaults())
	if err != nil {
		return err
	}
	_, given := cfg.Database()
	d, err := newDev(cmd, given != nil && !kept)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	b.URL, b.Store = d.URL(), d.Store()
	b.Progress = func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }
	result, err := b.Run(ctx)
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	if asJSON {
		return printJSON(cmd, result)
	}
	printTable(cmd, [][]string{
		{"scenario", "queues x depth", "connections", "rate/s", "min-max", "POST p50", "p99", "p99.9 ms"},
		{result.Scenario, fmt.Sprintf("%d x %d", result.Queues, result.Depth), fmt.Sprint(result.Connections), fmt.Sprintf("%.0f", result.Rate),
			fmt.Sprintf("%.0f-%.0f", result.RateMin, result.RateMax), fmt.Sprintf("%.1f", result.PostP50), fmt.Sprintf("%.1f", result.PostP99), fmt.Sprintf("%.1f", result.PostP999)},
	})
	return nil
}
