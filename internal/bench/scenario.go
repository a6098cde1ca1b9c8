package bench

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Sizes are the flags of scenarios.
type Sizes struct {
	Runs int  // of each scenario, or pairs of runs
	Zipf bool // fifo: keys as unequal as the words of a language

	Queues      int           // e2e, ingest, latency, http-worker
	Depth       int           // e2e, http-worker: transactions per queue
	Connections int           // e2e, latency
	Waiting     int           // senders: queues
	Finished    []int         // backlog: how many lie there already
	Behind      int           // backlog: how many wait at once, in the level that is full of waiting ones
	Hold        time.Duration // snapshot: how long it is held
	Free        time.Duration // snapshot: how long before it is held
	Shapes      []string      // snapshot
	Rate        float64       // idle-latency: posts a second
	Samples     int           // idle-latency: posts
	Batch       int           // ingest-batch: transactions a post
	Length      time.Duration // of a run of traffic
}

// Scenario is one thing to measure.
type Scenario struct {
	Name  string // as it is asked for
	About string
	run   func(context.Context, *Bench) ([]*Result, error)
}

// Scenarios are all of them, in the order in which they run. fifo is also there for any other keys x depth.
var Scenarios = []Scenario{
	{"e2e", "posts over HTTP, dispatched at once by the same process", e2e},
	{"fifo", "the five of them below", each5},
}

func init() {
	for _, l := range fifoSizes {
		Scenarios = append(Scenarios, fifo(l))
	}
	for _, c := range []int{64, 1, 16, 256} {
		Scenarios = append(Scenarios, ingestHTTP(c))
	}
	Scenarios = append(Scenarios, Scenario{"ingest-batch", "POST of batches over 4 connections", ingestBatch},
		Scenario{"ingest-sql", "postern.submit inside SQL transactions of an application, beside the same without it", ingestSQL})
	Scenarios = append(Scenarios,
		Scenario{"idle-latency", "one post a second: until the worker is called, and until DONE is visible", idle},
		Scenario{"loaded-latency", "the same at 50 % and 80 % of the capacity, which is measured just before", loaded},
		Scenario{"http-worker", "as fifo, to a worker that is a process of its own", httpWorker},
		Scenario{"senders", "8 senders for many queues, and an inclusion of 1 s", senders})
	Scenarios = append(Scenarios,
		Scenario{"backlog", "the rate with nothing else in the tables, with millions that have ended, with millions that wait", backlog},
		Scenario{"snapshot", "the rate while another session has written and keeps its SQL transaction open", snapshot},
		Scenario{"replicas", "1, 2 and 4 sequencers on the same queues", replicas})
	for _, c := range []int{1, 16, 64} {
		Scenarios = append(Scenarios, commits(c))
	}
}

// fifoSizes are the keys and depths that fifo stands for.
var fifoSizes = []load{{keys: 1, depth: 2000}, {keys: 1000, depth: 10}, {keys: 20000, depth: 1}, {keys: 100000, depth: 10}, {keys: 1000000, depth: 1}}

func each5(ctx context.Context, b *Bench) (all []*Result, err error) {
	for _, l := range fifoSizes {
		r, err := fifo(l).run(ctx, b)
		if err != nil {
			return all, err
		}
		all = append(all, r...)
	}
	return all, nil
}

// fifo measures the sequencer alone: rows lie there, and a process begins to work on them.
func fifo(l load) Scenario {
	name := fmt.Sprintf("fifo-%dx%d", l.keys, l.depth)
	return Scenario{name, fmt.Sprintf("%s queues with %s transactions each, to a worker that does nothing", count(l.keys), count(l.depth)),
		func(ctx context.Context, b *Bench) ([]*Result, error) {
			if l.zipf = b.Zipf && l.keys > 1; l.zipf {
				name += "-zipf"
			}
			var trials, limits []*trial
			for i := range b.Runs {
				t, err := b.drain(ctx, l)
				if err != nil {
					return nil, fmt.Errorf("run %d of %d: %w", i+1, b.Runs, err)
				}
				b.told(name, i, t)
				trials = append(trials, t)
				if l.keys == 1 { // its limit is one durable commit after the other
					if t, err = b.commit(ctx, 1, min(b.Length, t.took)); err != nil {
						return nil, err
					}
					limits = append(limits, t)
				}
			}
			r := b.summary(name, "postern", trials)
			r.Settings["queues"], r.Settings["depth"] = l.keys, l.depth
			if l.keys == 1 && r.Violations == 0 {
				r.Ratios = map[string]Ratio{"to_commit_1": ratio(trials, limits, (*trial).rate)}
			}
			return []*Result{r}, nil
		}}
}

// told says how a run went.
func (b *Bench) told(name string, run int, t *trial) {
	if t.bad > 0 {
		b.Progress(fmt.Sprintf("%s: run %d of %d is WRONG: %s", name, run+1, b.Runs, strings.Join(t.wrong, "; ")))
		return
	}
	b.Progress(fmt.Sprintf("%s: run %d of %d: %.0f transactions a second", name, run+1, b.Runs, t.rate()))
}

var fifoName = regexp.MustCompile(`^fifo-([1-9]\d{0,7})x([1-9]\d{0,7})$`)

// Find returns the scenarios of these names, or an error that says what there is.
func Find(names []string) ([]Scenario, error) {
	var list []Scenario
	for _, name := range names {
		i := slices.IndexFunc(Scenarios, func(s Scenario) bool { return s.Name == name })
		if m := fifoName.FindStringSubmatch(name); i < 0 && m != nil {
			keys, _ := strconv.Atoi(m[1])
			depth, _ := strconv.Atoi(m[2])
			list = append(list, fifo(load{keys: keys, depth: depth}))
			continue
		}
		if i < 0 {
			var all []string
			for _, s := range Scenarios {
				all = append(all, s.Name)
			}
			return nil, fmt.Errorf("there is no scenario %q: want one of %s, or fifo-KEYSxDEPTH", name, strings.Join(all, ", "))
		}
		list = append(list, Scenarios[i])
	}
	return list, nil
}

// Run runs a scenario. A wrong run is a result with violations; an error is one that could not be made.
func (b *Bench) Run(ctx context.Context, s Scenario) ([]*Result, error) {
	r, err := s.run(ctx, b)
	if err != nil {
		return r, fmt.Errorf("%s: %w", s.Name, err)
	}
	for _, one := range r {
		if one.Violations > 0 {
			return r, nil // the rows stay, to be looked at
		}
	}
	return r, b.reset(ctx)
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
