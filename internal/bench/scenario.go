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
	Runs int // of each scenario, or pairs of runs

	Queues      int           // e2e, ingest, latency, http-worker
	Depth       int           // e2e, http-worker: transactions per queue
	Connections int           // e2e, latency
	Waiting     int           // senders: queues
	Finished    []int         // backlog: how many lie there already
	Behind      int           // backlog: how many wait at once, in the level that is full of waiting ones
	Hold        time.Duration // snapshot: how long it is held
	Free        time.Duration // snapshot: how long before it is held
	Control     bool          // snapshot: nothing is held
	Shapes      []string      // snapshot
	Rate        float64       // idle-latency: posts a second
	Samples     int           // idle-latency: posts
	Batch       int           // ingest-batch: transactions a post
	Length      time.Duration // of a run of traffic
	Processors  int           // processor
	Batches     int           // processor: over all of them; batch-insert: in the long line
	Events      int           // leader
	Flows       int           // flow
	MessageRate float64       // messages-steady: posts a second
	Intents     int           // domain: over all domains
}

// DefaultSizes are those that the figures of this project are made with.
var DefaultSizes = Sizes{Runs: 5, Queues: 1000, Depth: 10, Connections: 64, Waiting: 10000, Finished: []int{1000000, 10000000}, Behind: 10000000,
	Hold: 10 * time.Minute, Free: 20 * time.Second, Shapes: []string{"1xn", "1000x10", "1000x10" + inTurns, "20000x1", bySenders}, Rate: 1, Samples: 60, Batch: 100, Length: 5 * time.Second, Processors: 1000, Batches: 100000, Events: 10000,
	Flows: 1000, MessageRate: 100, Intents: 600}

// Validate says which size nothing can be measured with, by the name of its flag.
func (s Sizes) Validate() error {
	least := map[string]int{"runs": s.Runs, "queues": s.Queues, "depth": s.Depth, "connections": s.Connections, "batch": s.Batch, "waiting": s.Waiting, "samples": s.Samples, "processors": s.Processors, "batches": s.Batches, "events": s.Events,
		"flows": s.Flows, "intents": s.Intents}
	for _, name := range sorted(least) {
		if least[name] < 1 {
			return fmt.Errorf("--%s %d: want at least 1", name, least[name])
		}
	}
	above := map[string]time.Duration{"length": s.Length, "hold": s.Hold, "free": s.Free}
	for _, name := range sorted(above) {
		if above[name] <= 0 {
			return fmt.Errorf("--%s %s: want more than 0", name, above[name])
		}
	}
	rates := map[string]float64{"rate": s.Rate, "message-rate": s.MessageRate}
	for _, name := range sorted(rates) {
		if rates[name] <= 0 {
			return fmt.Errorf("--%s %g: want more than 0", name, rates[name])
		}
	}
	if len(s.Finished) == 0 {
		return fmt.Errorf("--finished: want at least one number")
	}
	for _, n := range s.Finished {
		if n < 1 {
			return fmt.Errorf("--finished %d: want at least 1", n)
		}
	}
	if s.Behind < 0 {
		return fmt.Errorf("--behind %d: want at least 0", s.Behind)
	}
	for _, shape := range s.Shapes {
		if _, err := parseShape(shape); err != nil {
			return fmt.Errorf("--shapes: %w", err)
		}
	}
	return nil
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
	{"e2e-watched", "the same, with and without ten open dashboards, in turns", e2eWatched},
	{"fifo", "the five of them below, in turns", fifos(false)},
	{"fifo-zipf", "those with many queues, where the k-th has about 1/k^1.1 of all transactions, in turns", fifos(true)},
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
		Scenario{"replicas", "1, 2 and 4 sequencers on the same queues", replicas},
		Scenario{"retention", "what a transaction waits for while a day is made and one dropped", retention})
	Scenarios = append(Scenarios,
		Scenario{"processor", "batches of many processors, ticked and executed through the core", batches},
		Scenario{"batch-insert", "an insert at the front of a line of 100 batches, and of a long one, in turns", batchInserts},
		Scenario{"leader", "events through one tool that does nothing, and eight channels to their workflow", events},
		Scenario{"flow", "flows of 20 jobs that do nothing, for a runner of 8 slots over HTTP", flowRuns},
		Scenario{"flow-latency", "a chain of 20 jobs: from one job's finish to the claim of the next", flowLatency},
		Scenario{"flow-claim", "a claim, alone and in front of 100,000 offered jobs of another type, in turns",
			flowClaim},
		Scenario{"messages", "from 32 actors to another installation, over the loopback and over a line of 50 ms",
			messageRuns},
		Scenario{"messages-steady", "the same, posted at a steady rate", messageSteady},
		Scenario{"domain",
			"intents of one domain and of 50 that three installations share, with services that do nothing",
			domainRuns},
		Scenario{"domain-crowd",
			"an intent at a time, beside a domain with 10,000 that wait at one node, whose coordinator is killed",
			domainCrowd})
	for _, c := range []int{1, 16, 64} {
		Scenarios = append(Scenarios, commits(c))
	}
}

// fifoSizes are the keys and depths that fifo stands for.
var fifoSizes = []load{{keys: 1, depth: 2000}, {keys: 1000, depth: 10}, {keys: 20000, depth: 1}, {keys: 100000, depth: 10}, {keys: 1000000, depth: 1}}

// fifos measures them in turns, so that their ratios mean something.
func fifos(zipf bool) func(context.Context, *Bench) ([]*Result, error) {
	return func(ctx context.Context, b *Bench) ([]*Result, error) {
		var list []load
		for _, l := range fifoSizes {
			if l.zipf = zipf; l.keys > 1 || !zipf {
				list = append(list, l)
			}
		}
		return b.drains(ctx, list)
	}
}

func (l load) name() string {
	if l.zipf {
		return fmt.Sprintf("fifo-%dx%d-zipf", l.keys, l.depth)
	}
	return fmt.Sprintf("fifo-%dx%d", l.keys, l.depth)
}

// fifo measures the sequencer alone: rows lie there, and a process begins to work on them.
func fifo(l load) Scenario {
	return Scenario{l.name(), fmt.Sprintf("%s queues with %s transactions each, to a worker that does nothing", count(l.keys), count(l.depth)),
		func(ctx context.Context, b *Bench) ([]*Result, error) { return b.drains(ctx, []load{l}) }}
}

// drains measures loads in turns. One queue is held against what limits it, one durable commit after the
// other; many against the fewest of the same depth.
func (b *Bench) drains(ctx context.Context, list []load) (all []*Result, err error) {
	trials, limits := make([][]*trial, len(list)), make([][]*trial, len(list))
	for i := range b.Runs {
		for j := range list {
			k := (i + j) % len(list)
			t, err := b.drain(ctx, list[k])
			if err != nil {
				return nil, fmt.Errorf("%s: run %d of %d: %w", list[k].name(), i+1, b.Runs, err)
			}
			b.told(list[k].name(), i, t)
			trials[k] = append(trials[k], t)
			if list[k].keys == 1 {
				if t, err = b.commit(ctx, 1, min(b.Length, t.took)); err != nil {
					return nil, err
				}
				limits[k] = append(limits[k], t)
			}
		}
	}
	for k, l := range list {
		r := b.summary(l.name(), "postern", trials[k])
		r.Settings["queues"], r.Settings["depth"] = l.keys, l.depth
		r.compare("to_commit_1", trials[k], limits[k], (*trial).rate)
		if few := slices.IndexFunc(list, func(o load) bool { return o.keys > 1 && o.depth == l.depth }); few >= 0 && few < k {
			r.compare("to_"+strings.TrimPrefix(list[few].name(), "fifo-"), trials[k], trials[few], (*trial).rate)
		}
		all = append(all, r)
	}
	return all, nil
}

// told says how a run went.
func (b *Bench) told(name string, run int, t *trial) {
	if t.bad > 0 {
		b.Progress(fmt.Sprintf("%s: run %d of %d is WRONG: %s", name, run+1, b.Runs, strings.Join(t.wrong, "; ")))
		return
	}
	b.Progress(fmt.Sprintf("%s: run %d of %d: %.0f transactions a second", name, run+1, b.Runs, t.rate()))
}

var fifoName = regexp.MustCompile(`^fifo-([1-9]\d{0,7})x([1-9]\d{0,7})(-zipf)?$`)

// Find returns the scenarios of these names, or an error that says what there is.
func Find(names []string) ([]Scenario, error) {
	var list []Scenario
	for _, name := range names {
		i := slices.IndexFunc(Scenarios, func(s Scenario) bool { return s.Name == name })
		if m := fifoName.FindStringSubmatch(name); i < 0 && m != nil {
			keys, _ := strconv.Atoi(m[1])
			depth, _ := strconv.Atoi(m[2])
			if m[3] != "" && keys == 1 {
				return nil, fmt.Errorf("scenario %q: one queue has no unequal ones beside it", name)
			}
			list = append(list, fifo(load{keys: keys, depth: depth, zipf: m[3] != ""}))
			continue
		}
		if i < 0 {
			var all []string
			for _, s := range Scenarios {
				all = append(all, s.Name)
			}
			return nil, fmt.Errorf("there is no scenario %q: want one of %s, or fifo-KEYSxDEPTH[-zipf]", name, strings.Join(all, ", "))
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
