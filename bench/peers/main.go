// Command peers measures Postern beside other systems that keep their work in PostgreSQL, in one run on one
// server: README.md says what is measured, and how each system was tuned. `make bench-peers` runs it.
//
// A run takes the systems in turns. In every round each of them gets a database of its own, loads its rows, is
// let go, and is measured until its last completion is recorded; the next round begins with another one.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/postern-dev/postern/internal/devpg"
)

func main() {
	devpg.MaybeChild()
	if len(os.Args) > 1 && os.Args[1] == workerCommand {
		os.Exit(riverWorker(os.Args[2:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench-peers:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, told io.Writer) error {
	f := flag.NewFlagSet("peers", flag.ContinueOnError)
	f.SetOutput(told)
	runs := f.Int("runs", 9, "rounds; each system runs once in each")
	limit := f.Duration("limit", 2*time.Minute, "how long one run may work; what did not finish by then is told by what it finished")
	names := f.String("scenarios", "fifo-1000x10,fifo-20000x1,fifo-100000x10,e2e,idle-latency", "what to measure, by commas: fifo-KEYSxDEPTH, e2e[-KEYSxDEPTH], idle-latency")
	chosen := f.String("systems", "", "which systems, by commas; all of them if empty: "+strings.Join(systemNames(), ", "))
	form := f.String("o", "table", "json: one line per scenario and system; table: for people")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *runs < 1 || *limit <= 0 || (*form != "json" && *form != "table") || f.NArg() > 0 {
		return errors.New("want --runs of at least 1, a --limit above 0, -o json or table, and no other words")
	}
	scenarios, err := parseScenarios(*names)
	if err != nil {
		return err
	}
	systems, err := pick(*chosen)
	if err != nil {
		return err
	}
	say := func(format string, args ...any) { fmt.Fprintf(told, format+"\n", args...) }
	b, err := open(ctx, *limit, say)
	if err != nil {
		return err
	}
	defer b.close()
	var lines []line
	for _, s := range scenarios {
		made, err := b.measure(ctx, s, systems, *runs)
		if err != nil {
			return err
		}
		lines = append(lines, made...)
		if *form == "json" {
			for _, l := range made {
				if err := json.NewEncoder(out).Encode(l); err != nil {
					return err
				}
			}
		}
	}
	if *form == "table" {
		return table(out, lines)
	}
	return nil
}
