package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// sum is the line behind several runs. Zero seen in n independent faults means a rate below 3/n at 95 %.
type sum struct {
	Runs         int                 `json:"runs"` // that came to their end
	Asked        int                 `json:"runs_asked"`
	Wrong        []uint64            `json:"wrong_seeds"`
	Broken       []uint64            `json:"broken_off_seeds,omitempty"` // by the harness itself
	All          int                 `json:"faults_in_all"`
	Faults       map[string]int      `json:"faults"` // that broke something
	Failed       map[string]int      `json:"faults_that_broke_nothing,omitempty"`
	Storms       int                 `json:"terminate_storms"`
	Commits      int                 `json:"commits_broken"`
	Found        int                 `json:"held_and_found_out"`
	Troubles     int                 `json:"troubles"` // of the harness
	Acknowledged int                 `json:"acknowledged"`
	Staged       int                 `json:"acknowledged_in_sql"`
	Unknown      int                 `json:"unknown"`
	Again        int                 `json:"double_invocations"`
	Stale        int                 `json:"stale_calls_refused"`
	Late         int                 `json:"stale_writes_refused"`
	Stalled      int                 `json:"stalled_queues"`
	Recovery     map[string]recovery `json:"recovery"`

	times map[string][]time.Duration
	never map[string]int
}

// add adds a run.
func (s *sum) add(r *result) {
	s.Runs++
	if r.wrong() {
		s.Wrong = append(s.Wrong, r.Seed)
	}
	for kind, n := range r.Faults {
		s.Faults[kind] += n
		s.All += n
	}
	for kind, n := range r.Failed {
		s.Failed[kind] += n
	}
	s.Storms += r.Storms
	s.Commits += r.Commits
	s.Found += r.Found
	s.Troubles += len(r.Troubles)
	s.Acknowledged += r.Acknowledged
	s.Staged += r.Staged
	s.Unknown += r.Unknown
	s.Again += r.Again
	s.Stale += r.Stale
	s.Late += r.Late
	s.Stalled += len(r.Stalled)
	for kind, times := range r.times {
		s.times[kind] = append(s.times[kind], times...)
	}
	for kind, n := range r.late {
		s.never[kind] += n
	}
}

// runAll makes runs, prints a line for each and, of several, their sum, and returns how many were not clean. The logs
// and the database of such a run are kept.
func runAll(ctx context.Context, o options, runs int, keep bool) (wrong int) {
	all := &sum{Asked: runs, Faults: map[string]int{}, Failed: map[string]int{},
		times: map[string][]time.Duration{}, never: map[string]int{}}
	for last := o.seed + uint64(runs); o.seed < last && ctx.Err() == nil; o.seed++ {
		o.schedule = o.plan()
		print(os.Stderr, o.schedule)
		out, err := chaos(ctx, o)
		if err != nil {
			fmt.Fprintf(os.Stderr, "chaos: seed %d: %v\n", o.seed, err)
			all.Broken = append(all.Broken, o.seed)
			continue
		}
		for kind, why := range out.Skipped {
			fmt.Fprintf(os.Stderr, "not shown: %s: %s\n", kind, why)
		}
		if !out.wrong() && !keep {
			os.RemoveAll(out.Dir)
			out.Dir = ""
		}
		line, _ := json.Marshal(out)
		fmt.Println(string(line))
		all.add(out)
	}
	if runs > 1 {
		all.Recovery = recoveries(all.times, all.never)
		line, _ := json.Marshal(all)
		fmt.Println(string(line))
	}
	return len(all.Wrong) + len(all.Broken)
}
