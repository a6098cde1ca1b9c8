package flows_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/flows"
	"github.com/postern-dev/postern/internal/pg/verify"
	"github.com/postern-dev/postern/internal/sequencer"
)

// A redrive takes over what finished with its prerequisites, which are met as they were. A job that needs only such
// jobs waits for nothing but a runner.
func TestARedriveTakesOverJobsWithPrerequisites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("a")
	refs := []int64{1, 2, 3}
	first := flow.Spec{Ref: &refs[0], Script: "1", ScriptType: "python", Timeout: time.Minute, NeedTimeout: time.Hour}
	second, third := first, first
	second.Ref, second.Dependends, second.Prerequisites = &refs[1], refs[:1], []string{"ok by finance", "ok by law"}
	third.Ref, third.Dependends = &refs[2], refs[1:2]
	f, err := w.S.Flows.PostFlow(w.Ctx, w.By, flows.FlowSpec{Jobs: []flow.Spec{first, second, third}, Start: true})
	w.Must(err)
	_, err = w.S.Flows.Meet(w.Ctx, w.By, w.jobsOf(f)[1].ID, second.Prerequisites)
	w.Must(err)
	for n, end := range []flows.Said{finished("1"), finished("2"), {Code: "broken", Error: "it broke", Final: true}} {
		w.offer()
		v := w.one("a")
		_, err := w.S.Flows.End(w.Ctx, w.ID, v.ID, v.Fence, end)
		w.Must(err)
		w.settleAll()
		if _, err := w.S.Flows.Advance(w.Ctx); err != nil {
			t.Fatalf("after job %d: %v", n+1, err)
		}
	}
	if got := w.stands(f); got != "error finished finished error" {
		t.Fatalf("the flow is %s", got)
	}
	again, err := w.S.Flows.Redrive(w.Ctx, w.By, f.ID, flows.Redrive{})
	w.Must(err)
	if got := w.stands(again); got != "dispatched finished finished dispatched" {
		t.Errorf("once it is redriven it is %s", got)
	}
	before, after := w.jobsOf(f)[1].Named, w.jobsOf(again)[1].Named
	for i, n := range after {
		if n.MetAt == nil || !n.MetAt.Equal(*before[i].MetAt) || n.MetBy != before[i].MetBy {
			t.Errorf("prerequisite %+v, want it as it was: %+v", n, before[i])
		}
	}
	found, err := verify.Violations(w.Ctx, w.S.Pool())
	w.Must(err)
	if len(found) > 0 {
		t.Error(found)
	}
	w.offer()
	if v := w.one("a"); v.Job != w.jobsOf(again)[2].ID {
		t.Errorf("a runner is handed job %s", v.Job)
	}
}

// settleAll settles what has ended of tries and prerequisites.
func (w *world) settleAll() {
	w.T.Helper()
	for {
		_, _, err := w.S.Flows.Unsettled(w.Ctx)
		w.Must(err)
		woken, err := w.S.Wake(w.Ctx, w.node, 10, 10)
		w.Must(err)
		if len(woken.Polls) == 0 {
			return
		}
		for _, l := range woken.Polls {
			status := w.S.Flows.StatusBatch(w.Ctx, l.Hashes())[0]
			step := sequencer.Polled(l.Flight(0), status, l.Dispatcher.Dispatcher, 0.5)
			w.Settle(&pg.Answer{Lease: l, StartedAt: w.Now, Step: step})
		}
	}
}
