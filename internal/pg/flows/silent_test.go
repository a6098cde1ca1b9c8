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
