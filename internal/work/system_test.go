package work_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/work"
)

// A system that nothing else knows runs its loop and its job, is its own worker, and hears of rings and ends.
func TestASystemNeedsNoChangeElsewhere(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.dispatcher("TOY", func(d *outbox.Dispatcher) { d.WorkerURL = "toy:" })
	var turns, jobs, rings, ends, ended atomic.Int32
	e := work.New(work.Config{Store: h.s, Worker: remote.Mux{}, NodeName: "toy", TTL: 2 * time.Second})
	e.Add(work.System{
		Name: "toy",
		Loops: []work.Loop{{
			Name:  "toys",
			Does:  "play",
			Every: time.Hour,
			Once: func(context.Context) (work.Turn, error) {
				if turns.Add(1) < 3 {
					return work.Turn{Did: 1, Next: work.AtOnce}, nil
				}
				return work.Turn{}, nil
			},
			End: func() { ended.Add(1) },
		}},
		Jobs: []work.Job{{Kind: "toy", Every: time.Hour, Run: func(context.Context) error { jobs.Add(1); return nil }}},
		Ring: func() { rings.Add(1) },
		Ended: func(_ *pg.Lease, a *pg.Answer) {
			if a.Step.State == outbox.DONE {
				ends.Add(1)
			}
		},
		Workers: map[string]work.Call{
			"toy:": func(context.Context, *pg.Lease, remote.Call) outbox.Answer {
				return outbox.Answer{Result: outbox.Result{Done: []byte(`"played"`)}}
			},
		},
	})
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- e.Run(ctx) }()
	h.await(h.post("q", "TOY", "a", "b"), time.Minute, outbox.DONE)
	h.within("a job", func() bool { return jobs.Load() > 0 && ends.Load() == 2 && rings.Load() > 0 })
	stop()
	h.must(<-over)
	if turns.Load() != 3 || ended.Load() != 1 {
		t.Errorf("the loop turned %d times and ended %d times, want 3 and 1", turns.Load(), ended.Load())
	}
}

// Nothing is claimed, and no timer taken, before the systems have done what comes first: at the start, and once a
// quarantine is over.
func TestNothingIsClaimedBeforeWhatComesFirst(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	var may atomic.Bool
	var tried, calls atomic.Int32
	h.dispatcher("TOY", func(d *outbox.Dispatcher) { d.WorkerURL = "toy:" })
	e := work.New(work.Config{Store: h.s, Worker: remote.Mux{}, NodeName: "toy", TTL: 2 * time.Second})
	e.Add(work.System{
		Name: "toy",
		First: func(context.Context) error {
			if tried.Add(1); may.Load() {
				return nil
			}
			return errors.New("not yet")
		},
		Workers: map[string]work.Call{
			"toy:": func(context.Context, *pg.Lease, remote.Call) outbox.Answer {
				calls.Add(1)
				return outbox.Answer{Result: outbox.Result{Done: []byte(`"played"`)}}
			},
		},
	})
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- e.Run(ctx) }()
	for n, uid := range []string{"at the start", "behind a quarantine"} {
		may.Store(false)
		if n > 0 {
			h.enter(pg.Quarantine{})
			h.release(pg.Quarantine{})
		}
		before := tried.Load()
		ids := h.post("q", "TOY", uid)
		h.within("a try", func() bool { return tried.Load() > before+3 })
		if got := calls.Load(); got != int32(n) {
			t.Errorf("%s: %d calls before", uid, got)
		}
		may.Store(true)
		h.await(ids, time.Minute, outbox.DONE)
	}
	stop()
	h.must(<-over)
}
