package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/bench"
	"github.com/postern-dev/postern/internal/devpg"
)

// errWrongRun is how bench ends if a run lost, doubled or disordered something.
var errWrongRun = errors.New("a run was wrong: it has violations and no rate")

func benchCommand() *cobra.Command {
	c := bench.Config{Sizes: bench.DefaultSizes}
	var list bool
	var svg string
	cmd := &cobra.Command{
		Use:   "bench [SCENARIO...]",
		Short: "Measure: load on a durable database, every run checked, one JSON line per scenario",
		Long: trim(`
			Measure Postern as its users meet it: whole processes over a durable database, and with HTTP where
			there is HTTP. --list says which scenarios there are; without a name, e2e and fifo-1000x10 run.

			The database is one of our own (durable, its settings are in the result), thrown away at the end,
			or the one that DATABASE_URL names: an empty one is migrated, filled and emptied again; what is in
			it already stays. Every run is checked in its tables: if something was lost, doubled, or out of
			order, the scenario has violations and no rate, and the exit code is 1.

			The result is one JSON line per scenario; on a terminal a table. Rates are transactions a second
			(the median of the runs, and the least and the most), times are milliseconds, costs are per
			transaction. Compare ratios of one run, not rates of two machines or of two days.`),
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if list {
				return listScenarios(cmd)
			}
			if len(args) == 0 {
				args = []string{"e2e", "fifo-1000x10"}
			}
			scenarios, err := bench.Find(args)
			if err != nil {
				return usage(cmd, err)
			}
			asked, err := asJSON(cmd)
			if err != nil {
				return err
			}
			return runBench(cmd, c, scenarios, asked, svg)
		},
	}
	addBenchFlags(cmd, &c)
	cmd.Flags().BoolVar(&list, "list", false, "list the scenarios")
	cmd.Flags().StringVar(&svg, "svg", "",
		"write a picture of each sweep (keys, connections, backlog, replicas, snapshot) to this directory")
	cmd.AddCommand(benchCheckCommand(), benchProcessCommand())
	return cmd
}

// addBenchFlags gives a command the sizes of scenarios and the settings of the processes that it measures.
func addBenchFlags(cmd *cobra.Command, c *bench.Config) {
	f := cmd.Flags()
	f.SortFlags = false
	f.IntVar(&c.Runs, "runs", c.Runs, "runs of each scenario, or pairs of runs where things are compared")
	f.DurationVar(&c.Length, "length", c.Length, "ingest, commit, loaded-latency, senders: how long a run is")
	f.IntVar(&c.Queues, "queues", c.Queues,
		"e2e, ingest, loaded-latency, http-worker: queues; replicas takes 10 times, backlog 60 times as many")
	f.IntVar(&c.Depth, "depth", c.Depth, "e2e, loaded-latency, http-worker, backlog, replicas: transactions per queue")
	f.IntVar(&c.Connections, "connections", c.Connections, "e2e, loaded-latency: connections that post")
	f.IntVar(&c.Batch, "batch", c.Batch, "ingest-batch: transactions a post")
	f.IntVar(&c.Processors, "processors", c.Processors, "processor: how many")
	f.IntVar(&c.Events, "events", c.Events, "leader: how many")
	f.IntVar(&c.Flows, "flows", c.Flows, "flow: how many, of 20 jobs each")
	f.Float64Var(&c.MessageRate, "message-rate", c.MessageRate, "messages-steady: posts a second")
	f.IntVar(&c.Intents, "intents", c.Intents, "domain: intents over all domains")
	f.IntVar(&c.Batches, "batches", c.Batches, "processor: over all of them; batch-insert: in the long line")
	f.IntVar(&c.Waiting, "waiting", c.Waiting, "senders: queues")
	f.IntSliceVar(&c.Finished, "finished", c.Finished, "backlog: so many have ended before")
	f.IntVar(&c.Behind, "behind", c.Behind, "backlog: so many wait at once; 0: leave that out")
	f.DurationVar(&c.Hold, "hold", c.Hold, "snapshot: how long it is held")
	f.DurationVar(&c.Free, "free", c.Free, "snapshot: how long before it is held")
	f.BoolVar(&c.Control, "control", c.Control,
		"snapshot: hold nothing, to see what the same time does to the rate by itself")
	f.StringSliceVar(&c.Shapes, "shapes", c.Shapes, "snapshot: queues x depth of a round, or senders")
	f.Float64Var(&c.Rate, "rate", c.Rate, "idle-latency: posts a second")
	f.IntVar(&c.Samples, "samples", c.Samples, "idle-latency: posts")
	addSettings(cmd, devDefaults(), "database", "work", "stop", "log", "dev")
}

func listScenarios(cmd *cobra.Command) error {
	rows := [][]string{{"scenario", "what it measures"}}
	for _, s := range bench.Scenarios {
		rows = append(rows, []string{s.Name, s.About})
	}
	printTable(cmd, append(rows, []string{"fifo-KEYSxDEPTH[-zipf]", "the same, with any numbers"}))
	return nil
}

func runBench(cmd *cobra.Command, c bench.Config, scenarios []bench.Scenario, asJSON bool, svg string) (err error) {
	if err := c.Validate(); err != nil {
		return usage(cmd, err)
	}
	cfg, _, err := settings(cmd, devDefaults())
	if err != nil {
		return err
	}
	b, err := openBench(cmd, cfg, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	var results []*bench.Result
	wrong := false
	for _, s := range scenarios {
		some, err := b.Run(cmd.Context(), s)
		for _, r := range some {
			wrong = wrong || r.Violations > 0
			if asJSON {
				err = errors.Join(err, printJSON(cmd, r))
			}
		}
		results = append(results, some...)
		if err != nil {
			return err
		}
	}
	if !asJSON {
		printTable(cmd, bench.Table(results))
	}
	if svg != "" {
		if err := os.MkdirAll(svg, 0o755); err != nil {
			return err
		}
		for name, picture := range bench.Plots(results) {
			if err := os.WriteFile(filepath.Join(svg, name), []byte(picture), 0o644); err != nil {
				return err
			}
		}
	}
	if wrong {
		return errWrongRun
	}
	return nil
}

// openBench opens the configured database, or one of our own.
func openBench(cmd *cobra.Command, cfg app.Config, c bench.Config) (*bench.Bench, error) {
	c.Progress = func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }
	if database, err := cfg.Database(); err == nil {
		c.Database = database
		c.Progress("using the database " + app.Masked(database))
	}
	c.Server = devpg.Options{BinDir: cfg.PGBin, AllowDownload: cfg.PGDownload, StateDir: cfg.StateDir}
	c.Launch = launcher(cmd)
	return bench.Open(cmd.Context(), c)
}
