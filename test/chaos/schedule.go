package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"strings"
	"time"
)

// planned is one fault of a schedule.
type planned struct {
	at   time.Duration // from the start; later, where the one before it takes longer
	kind fault
	seed uint64 // what the fault draws by itself
}

// plan draws a schedule: a seed fixes which faults come, when, and what each draws, however long each takes.
func plan(seed uint64, seconds int, every time.Duration, list []fault) (schedule []planned) {
	r := rand.New(rand.NewPCG(seed, 0))
	for at := time.Duration(0); ; {
		at += time.Duration(float64(every) * (0.3 + 1.4*r.Float64()))
		if at > time.Duration(seconds)*time.Second {
			return schedule
		}
		schedule = append(schedule, planned{at: at, kind: list[r.IntN(len(list))], seed: r.Uint64()})
	}
}

// plan draws the schedule of a run. Flows are posted for as long as it takes.
func (o *options) plan() []planned {
	seconds := o.seconds
	if o.hasFlows() {
		seconds += 10 * o.flows
	}
	return plan(o.seed, seconds, o.every, o.faults)
}

// print writes a schedule, a line for each fault.
func print(out io.Writer, schedule []planned) {
	for _, p := range schedule {
		fmt.Fprintf(out, "%8.3f %-18s %016x\n", p.at.Seconds(), p.kind.name, p.seed)
	}
}

// chosenFor returns the faults of a load: without names those of transactions that can be mixed, or those of flows.
func chosenFor(load, names, without string) ([]fault, error) {
	switch {
	case names != "":
	case load == "flows":
		names = flowFaults
	case load == "peers":
		names = peerFaults
	case load == "domains":
		names = domainFaults
	}
	return chosen(names, without)
}

// chosen returns the faults that a list of names picks, those that can be mixed for "", less those of another list.
func chosen(names, without string) (list []fault, err error) {
	if names == "" {
		for _, f := range faults {
			if !f.apart {
				list = append(list, f)
			}
		}
	} else if list, err = named(names); err != nil {
		return nil, err
	}
	out, err := named(without)
	return slices.DeleteFunc(list, func(f fault) bool {
		return slices.ContainsFunc(out, func(o fault) bool { return o.name == f.name })
	}), err
}

// named are the faults of a list of names.
func named(names string) (list []fault, err error) {
	for _, name := range strings.FieldsFunc(names, func(r rune) bool { return r == ',' }) {
		i := slices.IndexFunc(faults, func(f fault) bool { return f.name == name })
		if i < 0 {
			return nil, fmt.Errorf("fault %q is not known: want one of %s", name, known())
		}
		list = append(list, faults[i])
	}
	return list, nil
}

func known() string {
	var names []string
	for _, f := range faults {
		names = append(names, f.name)
	}
	sort.Strings(names)
	return strings.Join(names, ", ")
}

// run lets the faults of the schedule happen, one after another, until ctx ends. Some come while the system still
// recovers from the one before.
func (w *world) run(ctx context.Context, schedule []planned) {
	began := time.Now()
	for _, p := range schedule {
		if !wait(ctx, time.Until(began.Add(p.at))) {
			return
		}
		if p.kind.skip != nil {
			if why := p.kind.skip(w); why != "" {
				w.skipped[p.kind.name] = why
				continue
			}
		}
		fmt.Fprintf(os.Stderr, "%s %6.1f %s\n", time.Now().Format("15:04:05.0"), time.Since(began).Seconds(), p.kind.name)
		w.strike(ctx, p)
	}
}

// strike lets a fault happen, and counts it if it has broken something.
func (w *world) strike(ctx context.Context, p planned) {
	life, cancel := context.WithTimeout(context.WithoutCancel(ctx), 120*time.Second)
	defer cancel()
	at := w.struck(p)
	p.kind.do(life, at, rand.New(rand.NewPCG(p.seed, 1)))
	if why := at.brokeNothing(); why != "" {
		fmt.Fprintf(os.Stderr, "%s has broken nothing: %s\n", p.kind.name, why)
		w.failed[p.kind.name]++
		return
	}
	w.counts[p.kind.name]++
}

// struck is what a fault breaks: of several installations one of them, and the lines between them by the first.
func (w *world) struck(p planned) *world {
	if d := w.domain; d != nil {
		if strings.HasPrefix(p.kind.name, "line-") || p.kind.name == "reorg" || p.kind.name == "endorser-slow" {
			return w
		}
		return d.sides[p.seed%uint64(len(d.sides))]
	}
	if w.pair == nil || p.seed%2 == 0 || strings.HasPrefix(p.kind.name, "line-") ||
		strings.HasPrefix(p.kind.name, "restore-") {
		return w
	}
	return w.pair.far
}

// wait waits for d; false is the end of ctx, also of one that has ended before. A fault that is due once the load has
// ended would break what is idle.
func wait(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
