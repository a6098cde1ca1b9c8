package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/bench"
)

// errSlower is how bench check ends if something became slower.
var errSlower = errors.New("slower than the interval of the baseline: look at it again on a quiet machine, " +
	"find out why, or say so with --update")

func benchCheckCommand() *cobra.Command {
	c := bench.Config{Sizes: bench.CheckSizes()}
	var baseline, beside string
	var update bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Compare a few short scenarios with a committed baseline",
		Long: trim(`
			Run a few short scenarios, each between two calibrations: durable commits of 1 client or of
			--connections, one narrow row each, by pgbench where it is installed. Compare what part of these commits a scenario
			reaches with the part that the baseline says, since rates of two machines or days cannot be compared.
			The exit code is 1 if one is wrong, or slower: its median lies below the interval of the baseline, and
			its interval below the median of the baseline. --update writes the baseline instead.

			A machine whose disk is of another kind than that of the baseline reaches other parts in all
			scenarios. There, --beside PROGRAM compares with another build of postern (say the one before a
			change): both run in turns.`),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asked, err := asJSON(cmd)
			if err != nil {
				return err
			}
			if err := c.Validate(); err != nil {
				return usage(cmd, err)
			}
			if beside != "" {
				return checkBeside(cmd, c, beside, asked)
			}
			var old *bench.Baseline
			text, err := os.ReadFile(baseline)
			switch {
			case err == nil:
				if err := json.Unmarshal(text, &old); err != nil {
					return usage(cmd, fmt.Errorf("%s is no baseline: %w", baseline, err))
				}
			case !update:
				return usage(cmd, fmt.Errorf("%w: --update writes one", err))
			}
			return checkBench(cmd, c, old, baseline, update, asked)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&baseline, "baseline", "bench/baseline.json", "the file to compare with")
	f.StringVar(&beside, "beside", "", "another build of postern to compare with, instead of a baseline")
	f.BoolVar(&update, "update", false, "write the baseline")
	cmd.MarkFlagsMutuallyExclusive("beside", "update")
	cmd.MarkFlagsMutuallyExclusive("beside", "baseline")
	f.IntVar(&c.Runs, "runs", c.Runs, "runs of each scenario")
	f.IntVar(&c.Queues, "queues", c.Queues, "queues")
	f.IntVar(&c.Depth, "depth", c.Depth, "transactions per queue")
	f.IntVar(&c.Connections, "connections", c.Connections,
		"connections that post, and clients of a calibration beside them")
	f.DurationVar(&c.Length, "length", c.Length, "how long traffic and calibrations are")
	addSettings(cmd, devDefaults(), "database", "work", "stop", "log", "dev")
	return cmd
}

// checkRow is the line of the table for one scenario.
func checkRow(r bench.Comparison) []string {
	row := []string{
		r.Scenario,
		r.To,
		fmt.Sprintf("%.3f", r.Ratio.Median),
		fmt.Sprintf("%.3f-%.3f", r.Ratio.Low, r.Ratio.High),
		"", "", "", "",
	}
	if was := r.Baseline; was != nil {
		row[4], row[5] = fmt.Sprintf("%.3f", was.Median), fmt.Sprintf("%.3f-%.3f", was.Low, was.High)
		row[6] = fmt.Sprintf("%+.1f %%", 100*r.Change)
	}
	if r.Slower {
		row[7] = "SLOWER"
	}
	if r.Violations > 0 {
		row[7] = "WRONG: " + strings.Join(r.Wrong, "; ")
	}
	return row
}

// checkBench runs a check and writes its table, or its JSON lines, or with update the baseline.
func checkBench(cmd *cobra.Command, c bench.Config, old *bench.Baseline, file string, update, asJSON bool) (err error) {
	cfg, _, err := settings(cmd, devDefaults())
	if err != nil {
		return err
	}
	b, err := openBench(cmd, cfg, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if update {
		old = nil
	}
	list, now, err := b.Check(cmd.Context(), old)
	if err != nil {
		return err
	}
	slower, wrong, err := printCheck(cmd, list, "baseline", asJSON)
	if err != nil {
		return err
	}
	switch {
	case wrong:
		return errWrongRun
	case update:
		text, err := json.MarshalIndent(now, "", "  ")
		if err != nil {
			return err
		}
		return os.WriteFile(file, append(text, '\n'), 0o644)
	case slower:
		return errSlower
	}
	return nil
}

// printCheck writes the table of a check, or its JSON lines, and says whether something was slower or wrong. The name
// is of what it was compared with.
func printCheck(cmd *cobra.Command, list []bench.Comparison, name string, asJSON bool) (slower, wrong bool, err error) {
	rows := [][]string{
		{"scenario", "of", "part", "interval", name, "its interval", "change", "verdict"},
	}
	for _, r := range list {
		slower, wrong = slower || r.Slower, wrong || r.Violations > 0
		if asJSON {
			if err := printJSON(cmd, r); err != nil {
				return false, false, err
			}
			continue
		}
		rows = append(rows, checkRow(r))
	}
	if !asJSON {
		printTable(cmd, rows)
	}
	return slower, wrong, nil
}
