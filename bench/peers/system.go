package main

import (
	"fmt"
	"slices"
	"strings"
)

// system is one of those that are compared, in its best documented configuration.
type system struct {
	name   string
	runs   []string // kinds of scenarios
	fifo   bool     // promises FIFO per key: one at a time, in order
	aside  bool     // shown for reference: what it does is not what ours does
	most   int      // keys that it can be asked to hold; 0 for any number
	note   string   // how it was tuned, or what it lacks
	tune   func(scenario) tuning
	node   string // the file in node/ that runs it; "" is a worker of this program
	undone string // SQL: whether anything is left whose completion is not recorded
}

// tuning is what of a system's configuration depends on the scenario, or on nothing. Its JSON is a part of the
// order to a worker.
type tuning struct {
	Loops      int  `json:"loops,omitempty"`       // pg-boss: how many fetch at once
	Batch      int  `json:"batch,omitempty"`       // pg-boss: jobs of one fetch
	LocalQueue int  `json:"local_queue,omitempty"` // graphile-worker: jobs of one fetch; 0 is off
	PollMs     int  `json:"poll_ms,omitempty"`     // pause after a fetch that found nothing
	PerKey     bool `json:"per_key,omitempty"`     // River: a queue for each key
	InsertMany int  `json:"insert_many,omitempty"` // River in e2e: rows of one insert; 0 is one
}

const ours = "postern"

// systems in the order of the first round.
var systems = []system{
	{
		name: ours, runs: []string{fifo, e2e, idle}, fifo: true,
		note: "as shipped; postern bench SCENARIO --runs 1 in a database of its own",
	},
	{
		name: "river", runs: []string{fifo, e2e, idle},
		note: "no FIFO per key in the open source version (sequences are River Pro: https://riverqueue.com/docs/pro/sequences), " +
			"so this is unordered and no peer of the fifo scenarios; 2,000 workers as https://riverqueue.com/docs/benchmarks, " +
			"FetchCooldown 2 ms (\"throughput is limited by this value\"), FetchPollInterval 50 ms, loaded with InsertManyFast",
		tune:   func(scenario) tuning { return tuning{} },
		undone: riverUndone,
	},
	{
		name: "river-insert-many", runs: []string{e2e}, aside: true,
		note: "as river, inserting 100 rows with each InsertManyFast (https://riverqueue.com/docs/batch-job-insertion): for reference, " +
			"since rows that come from many clients one at a time, as ours do, do not come in hundreds",
		tune:   func(scenario) tuning { return tuning{InsertMany: 100} },
		undone: riverUndone,
	},
	{
		name: "river-queue-per-key", runs: []string{fifo}, fifo: true, most: 1000,
		note: "a queue for each key with MaxWorkers 1 (https://riverqueue.com/docs/multiple-queues), which is FIFO in one process only " +
			"(https://riverqueue.com/blog/concurrency-limits), and calls the next before the one before is durable; " +
			"each queue polls on its own, so it is not for more than about 1,000 keys",
		tune:   func(scenario) tuning { return tuning{PerKey: true} },
		undone: riverUndone,
	},
	{
		name: "graphile-worker", runs: []string{fifo}, fifo: true, node: "graphile-worker.js",
		note:   "queue_name per key, local queue off; 24 jobs at once, pool of 25, completeJobBatchDelay 0 (https://worker.graphile.org/docs/performance), pollInterval 10 ms",
		tune:   func(scenario) tuning { return tuning{PollMs: 10} },
		undone: graphileUndone,
	},
	{
		name: "graphile-worker-local-queue", runs: []string{fifo}, fifo: true, node: "graphile-worker.js",
		note:   "as graphile-worker, with a local queue of 500 as on that page, and of 5,000 for 20,000 keys and more, which was faster",
		tune:   func(s scenario) tuning { return tuning{LocalQueue: sizes(s.keys, 500, 5000), PollMs: 10} },
		undone: graphileUndone,
	},
	{
		name: "pg-boss", runs: []string{fifo}, fifo: true, node: "pg-boss.js",
		note: "policy key_strict_fifo (https://pgboss.io/api/queues); fetch and complete in batches of 1,000 in one loop, for 20,000 keys and more of 5,000 in two (https://pgboss.io/api/jobs)",
		tune: func(s scenario) tuning {
			return tuning{Loops: sizes(s.keys, 1, 2), Batch: sizes(s.keys, 1000, 5000), PollMs: 5}
		},
		undone: `SELECT EXISTS (SELECT FROM pgboss.job WHERE state < 'completed')`,
	},
}

// sizes is what was fastest here: one figure for few keys, another for many.
func sizes(keys, few, many int) int {
	if keys < 20000 {
		return few
	}
	return many
}

const (
	riverUndone    = `SELECT EXISTS (SELECT FROM river_job WHERE state IN ('available', 'pending', 'retryable', 'running', 'scheduled'))`
	graphileUndone = `SELECT EXISTS (SELECT FROM graphile_worker._private_jobs)`
)

// absent are systems that were looked for and could not be had, with the reason.
var absent = []struct{ name, reason string }{
	{"pgmq", "its SQL is in no npm package, Go module or Debian package: https://github.com/pgmq/pgmq/blob/main/INSTALLATION.md " +
		"names PGXN, a clone of the repository, and a Rust crate"},
}

func systemNames() (names []string) {
	for _, s := range systems {
		names = append(names, s.name)
	}
	return names
}

// pick returns the systems of these names; all of them for "".
func pick(names string) ([]system, error) {
	if names == "" {
		return systems, nil
	}
	var list []system
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(systems, func(s system) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no system %q: want one of %s", name, strings.Join(systemNames(), ", "))
		}
		list = append(list, systems[i])
	}
	return list, nil
}

// unfit says why a system cannot be asked for a scenario, or "".
func (s system) unfit(c scenario) string {
	switch {
	case !slices.Contains(s.runs, c.kind):
		return "not compared in " + c.kind
	case s.most > 0 && c.keys > s.most:
		return fmt.Sprintf("not for %d keys", c.keys)
	}
	return ""
}

// peer tells whether a system is one that ours is held against: it promises what the scenario is about.
func (s system) peer(c scenario) bool {
	return s.name != ours && !s.aside && (s.fifo || c.kind != fifo)
}
