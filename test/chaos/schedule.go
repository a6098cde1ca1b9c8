package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sort"
	"strings"
	"syscall"
	"time"
)

// fault is a kind of fault: it breaks something and heals it again.
type fault struct {
	name string
	do   func(context.Context, *world, *rand.Rand)
}

// faults are all kinds, in the order that -faults names them.
var faults = []fault{
	{"kill-work", func(_ context.Context, w *world, r *rand.Rand) { w.any(r, "work").signal(syscall.SIGKILL) }},
	{"kill-serve", func(_ context.Context, w *world, r *rand.Rand) { w.any(r, "serve").signal(syscall.SIGKILL) }},
	{"stop", func(_ context.Context, w *world, r *rand.Rand) { w.any(r, "").signal(syscall.SIGTERM) }},
	{"freeze", func(ctx context.Context, w *world, r *rand.Rand) {
		p := w.any(r, "work")
		p.signal(syscall.SIGSTOP)
		wait(ctx, w.ttl/2+time.Duration(r.Int64N(int64(2*w.ttl))))
		p.signal(syscall.SIGCONT)
	}},
	{"terminate", func(ctx context.Context, w *world, _ *rand.Rand) {
		w.note(w.pg.exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'`))
	}},
	{"restart", func(ctx context.Context, w *world, _ *rand.Rand) {
		w.note(w.pg.stop(ctx, "fast"))
		w.note(w.pg.start(ctx))
	}},
	{"crash", func(ctx context.Context, w *world, r *rand.Rand) {
		if r.IntN(2) == 0 {
			w.note(w.pg.stop(ctx, "immediate"))
			w.note(w.pg.start(ctx))
		} else {
			w.note(w.pg.crash(ctx))
		}
	}},
	{"cut", func(_ context.Context, w *world, r *rand.Rand) { w.any(r, "").proxy.cut() }},
	{"black-hole", func(ctx context.Context, w *world, r *rand.Rand) {
		for _, p := range w.some(r) {
			p.proxy.blackHole()
		}
		wait(ctx, 3*time.Second)
	}},
	{"drop", func(ctx context.Context, w *world, r *rand.Rand) {
		p := w.any(r, "")
		p.proxy.drop(true)
		wait(ctx, time.Duration(1+r.Int64N(6))*time.Second)
		p.proxy.drop(false)
	}},
	{"slow", func(ctx context.Context, w *world, r *rand.Rand) {
		p := w.any(r, "")
		p.proxy.slow(time.Duration(10+r.Int64N(200)) * time.Millisecond)
		wait(ctx, 3*time.Second)
		p.proxy.slow(0)
	}},
	{"slow-worker", func(ctx context.Context, w *world, _ *rand.Rand) {
		w.worker.mu.Lock()
		w.worker.slow = time.Second
		w.worker.mu.Unlock()
		wait(ctx, 3*time.Second)
		w.worker.mu.Lock()
		w.worker.slow = 0
		w.worker.mu.Unlock()
	}},
	{"lock", func(ctx context.Context, w *world, _ *rand.Rand) {
		w.note(w.pg.exec(ctx, `BEGIN; LOCK TABLE postern.queue IN EXCLUSIVE MODE; SELECT pg_sleep(2); ROLLBACK`))
	}},
	{"river", func(ctx context.Context, w *world, _ *rand.Rand) {
		w.note(w.pg.exec(ctx, `DELETE FROM river.river_job`))
	}},
}

// chosen returns the faults that a list of names picks, all of them for "".
func chosen(names string) ([]fault, error) {
	if names == "" {
		return faults, nil
	}
	var list []fault
	for _, name := range strings.Split(names, ",") {
		found := false
		for _, f := range faults {
			if f.name == name {
				list, found = append(list, f), true
			}
		}
		if !found {
			return nil, fmt.Errorf("fault %q is not known: want one of %s", name, known())
		}
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

// run breaks one thing after another until ctx ends, with a pause between two that lets some of them meet a system that
// is still recovering.
func (w *world) run(ctx context.Context, list []fault, seed uint64, every time.Duration) {
	r := rand.New(rand.NewPCG(seed, 0))
	for wait(ctx, time.Duration(float64(every)*(0.3+1.4*r.Float64()))) {
		f := list[r.IntN(len(list))]
		own := rand.New(rand.NewPCG(seed, r.Uint64())) // what a fault draws does not depend on how long others took
		w.counts[f.name]++
		fmt.Fprintf(os.Stderr, "%s %s\n", time.Now().Format("15:04:05.0"), f.name)
		life, cancel := context.WithTimeout(context.WithoutCancel(ctx), 90*time.Second)
		f.do(life, w, own)
		cancel()
	}
}

// wait waits for d; false is the end of ctx.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
