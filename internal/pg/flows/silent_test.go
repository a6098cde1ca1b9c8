package flows_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/pg/flows"
)

// A runner counts its ttl from its last heartbeat, and kills its scripts two seconds before the end. Its server does
// not take back what it holds before that, however soon after another the heartbeat came and however long the ttl is.
func TestNoRunnerIsSilentBeforeItKillsItsScripts(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{3 * time.Second, time.Minute} {
		margin := min(2*time.Second, ttl/4)
		for _, after := range []time.Duration{ttl/10 - time.Millisecond, 900 * time.Millisecond} {
			w := newWorld(t)
			r := flows.RunnerSettings{Name: "a", Local: true, Slots: 2, TTL: ttl}
			_, err := w.S.Flows.PutRunner(w.Ctx, w.By, r.WithDefaults(), 0)
			w.Must(err)
			w.register("a")
			spec := flow.Spec{Script: "1", ScriptType: "python", Timeout: 2 * time.Hour}
			_, err = w.S.Flows.PostJob(w.Ctx, w.By, spec, "")
			w.Must(err)
			w.offer()
			v := w.one("a")
			holds := []flows.Hold{{Try: v.ID, Fence: v.Fence}}
			_, err = w.S.Flows.Renew(w.Ctx, w.ID, "a", w.epochs["a"], holds)
			w.Must(err)
			w.Later(after)
			_, err = w.S.Flows.Renew(w.Ctx, w.ID, "a", w.epochs["a"], holds)
			w.Must(err)
			w.Later(ttl - margin)
			if n, err := w.S.Flows.Lapse(w.Ctx); n != 0 || err != nil || w.state(v.ID) != "Held 0" {
				t.Errorf("ttl %s, a heartbeat %s after the one before: %s after it the try is %s (%d %v)", ttl, after,
					ttl-margin, w.state(v.ID), n, err)
			}
		}
	}
}

// A runner goes by the ttl that it was told. One that is written meanwhile, and is lower, takes nothing from it, until
// a second heartbeat shows that it may have been told; another process does not take its name before that, either.
func TestALowerTTLTakesNothingFromARunnerThatWasToldALongerOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	put := func(ttl time.Duration) {
		t.Helper()
		r := flows.RunnerSettings{Name: "a", Local: true, Slots: 2, TTL: ttl}
		_, err := w.S.Flows.PutRunner(w.Ctx, w.By, r.WithDefaults(), 0)
		w.Must(err)
	}
	put(time.Hour)
	w.register("a")
	spec := flow.Spec{Script: "1", ScriptType: "python", Timeout: 12 * time.Hour}
	_, err := w.S.Flows.PostJob(w.Ctx, w.By, spec, "")
	w.Must(err)
	w.offer()
	v := w.one("a")
	renew := func() {
		t.Helper()
		r, err := w.S.Flows.Renew(w.Ctx, w.ID, "a", w.epochs["a"], []flows.Hold{{Try: v.ID, Fence: v.Fence}})
		if w.Must(err); len(r.Lost) > 0 {
			t.Errorf("it lost %v", r.Lost)
		}
	}
	lapses := func(when string, after time.Duration, want string) {
		t.Helper()
		w.Later(after)
		_, err := w.S.Flows.Lapse(w.Ctx)
		w.Must(err)
		r, err := w.S.Flows.Runner(w.Ctx, w.ID, "a")
		w.Must(err)
		if got := w.state(v.ID); got != want || r.Live != (want == "Held 0") {
			t.Errorf("%s: the try is %s, want %s; the runner is live: %v", when, got, want, r.Live)
		}
	}
	put(15 * time.Second)
	lapses("no heartbeat since it was lowered", 20*time.Minute, "Held 0")
	_, _, err = w.S.Flows.Register(w.Ctx, w.By, "a", flows.Registration{Instance: "b", Slots: 1})
	if said(err) != "runner_live" {
		t.Errorf("another process registers under its name: %v", err)
	}
	renew()
	lapses("the answer may have been lost", 20*time.Minute, "Held 0")
	put(time.Hour)
	renew()
	put(15 * time.Second)
	lapses("it was told of a longer one between", 50*time.Minute, "Held 0")
	renew()
	renew()
	lapses("it was told twice", 14*time.Second, "Held 0")
	lapses("it was told twice", 2*time.Second, "Offered 1")
}
