package flows_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/reads"
)

// A job that is kept from all runners names what keeps it, and does not promise to go on.
func TestWhyNamesWhatKeepsTheJobsOfAType(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("a")
	j := w.post(0)
	why := func() *reads.Why {
		t.Helper()
		v, err := w.S.Flows.WhyJob(w.Ctx, w.ID, j.ID)
		w.Must(err)
		return v
	}
	if v := why(); !v.Moving || len(v.Blockers) != 0 {
		t.Errorf("a job that a runner is about to take: %+v", v)
	}
	shut := map[string]func(on bool) error{
		"dispatcher_paused": func(on bool) error {
			_, err := w.S.PauseDispatcher(w.Ctx, w.By, flow.Type("python"), on)
			return err
		},
		"context_paused": func(on bool) error { _, err := w.S.PauseContext(w.Ctx, w.By, "default", on); return err },
		"quarantined": func(on bool) error {
			q := pg.Quarantine{Type: flow.Type("python"), Reason: "test"}
			if on {
				return w.S.EnterQuarantine(w.Ctx, w.By, q)
			}
			_, err := w.S.ReleaseQuarantine(w.Ctx, w.By, q, true)
			return err
		},
	}
	for kind, turn := range shut {
		w.Must(turn(true))
		if v := why(); v.Moving || len(v.Blockers) != 1 || v.Blockers[0].Kind != kind ||
			len(v.Blockers[0].Levers) == 0 || v.Blockers[0].Since.IsZero() {
			t.Errorf("%s: %+v", kind, v)
		}
		w.Must(turn(false))
	}
}
