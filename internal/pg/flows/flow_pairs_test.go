package flows_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/flows"
)

// chain posts a flow of two jobs, the second after the first, and offers that.
func (w *world) chain() (*flows.Flow, []*flows.Job) {
	w.T.Helper()
	refs := []int64{1, 2}
	spec := flow.Spec{Ref: &refs[0], Script: "1", ScriptType: "python", Timeout: time.Minute, NeedTimeout: time.Hour}
	second := spec
	second.Ref, second.Dependends, second.Prerequisites = &refs[1], []int64{1}, []string{"ok"}
	f, err := w.S.Flows.PostFlow(w.Ctx, w.By, flows.FlowSpec{Jobs: []flow.Spec{spec, second}, Start: true})
	w.Must(err)
	w.offer()
	return f, w.jobsOf(f)
}

func (w *world) jobsOf(f *flows.Flow) []*flows.Job {
	w.T.Helper()
	jobs, err := w.S.Flows.JobsOf(w.Ctx, w.ID, f.ID)
	w.Must(err)
	return jobs
}

// stands says where a flow and its jobs are.
func (w *world) stands(f *flows.Flow) string {
	w.T.Helper()
	f, err := w.S.Flows.Flow(w.Ctx, w.ID, f.ID)
	w.Must(err)
	text := string(f.Status)
	for _, j := range w.jobsOf(f) {
		text += " " + string(j.Status)
		if j.StopAt != nil {
			text += "(stop)"
		}
	}
	return text
}

// A cancel of a flow waits for a claim of its first job, and has that stopped; a claim behind a cancel takes nothing.
func TestACancelOfAFlowBesideAClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("a")
	other := w.Another(4)
	f, _ := w.chain()
	second, waited := w.Beside(func() error { _, err := w.claim(w.S, "a"); return err }, func() string {
		r, err := other.Flows.CancelFlow(w.Ctx, w.By, f.ID)
		return fmt.Sprint(r.Changed, r.Pending, " ", said(err))
	})
	if got := w.stands(f); second != "true true ok" || !waited || got != "error started(stop) error" {
		t.Errorf("the cancel says %q, waited: %v; %s", second, waited, got)
	}
	f, _ = w.chain()
	second, waited = w.Beside(func() error { _, err := w.S.Flows.CancelFlow(w.Ctx, w.By, f.ID); return err },
		func() string {
			list, err := w.claim(other, "a")
			return fmt.Sprint(len(list), " ", said(err))
		})
	if got := w.stands(f); second != "0 ok" || got != "error error error" {
		t.Errorf("the claim says %q, waited: %v; %s", second, waited, got)
	}
}

// The end of a job and a cancel of its flow are serial by the row of the flow.
func TestACancelOfAFlowBesideTheEndOfAJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("a")
	other := w.Another(4)
	f, _ := w.chain()
	v := w.one("a")
	_, err := w.S.Flows.End(w.Ctx, w.ID, v.ID, v.Fence, finished("1"))
	w.Must(err)
	w.settleEnd()
	second, waited := w.Beside(func() error { _, err := w.S.Flows.Advance(w.Ctx); return err }, func() string {
		r, err := other.Flows.CancelFlow(w.Ctx, w.By, f.ID)
		return fmt.Sprint(r.Changed, r.Pending, " ", said(err))
	})
	if got := w.stands(f); second != "true false ok" || !waited || got != "error finished error" {
		t.Errorf("the cancel says %q, waited: %v; %s", second, waited, got)
	}
}

// Jobs that are added beside a cancel are refused, or cancelled with the others.
func TestAnAdditionBesideACancel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := w.Another(4)
	ref := int64(3)
	more := []flow.Spec{{Ref: &ref, Script: "1", ScriptType: "python", Timeout: time.Minute, Dependends: []int64{1}}}
	f, _ := w.chain()
	second, waited := w.Beside(func() error { return w.S.Flows.AddJobs(w.Ctx, w.By, f.ID, more) }, func() string {
		_, err := other.Flows.CancelFlow(w.Ctx, w.By, f.ID)
		return said(err)
	})
	if got := w.stands(f); second != "ok" || !waited || got != "error error error error" {
		t.Errorf("the cancel says %q, waited: %v; %s", second, waited, got)
	}
	f, _ = w.chain()
	second, waited = w.Beside(func() error { _, err := w.S.Flows.CancelFlow(w.Ctx, w.By, f.ID); return err },
		func() string { return said(other.Flows.AddJobs(w.Ctx, w.By, f.ID, more)) })
	if got := w.stands(f); second != "wrong_state" || !waited || got != "error error error" {
		t.Errorf("the addition says %q, waited: %v; %s", second, waited, got)
	}
}

// Of two that meet a prerequisite at one time one has changed it; only who made a flow changes it.
func TestTwoThatMeetAPrerequisite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := w.Another(4)
	f, jobs := w.chain()
	meet := func(s *flows.Store, id uuid.UUID) string {
		changed, err := s.Meet(w.Ctx, w.By, id, []string{"ok"})
		return fmt.Sprint(changed, " ", said(err))
	}
	second, waited := w.Beside(func() error {
		_, err := w.S.Flows.Meet(w.Ctx, w.By, jobs[1].ID, []string{"ok"})
		return err
	}, func() string { return meet(other.Flows, jobs[1].ID) })
	if second != "false ok" || !waited {
		t.Errorf("the second says %q, waited: %v", second, waited)
	}
	stranger := db.By{Context: w.ID, Actor: "stranger", Via: "test"}
	for name, err := range map[string]error{
		"start":  func() error { _, err := w.S.Flows.Start(w.Ctx, stranger, f.ID); return err }(),
		"add":    w.S.Flows.AddJobs(w.Ctx, stranger, f.ID, nil),
		"remove": w.S.Flows.RemoveJob(w.Ctx, stranger, f.ID, 2),
		"patch":  w.S.Flows.PatchFlow(w.Ctx, stranger, f.ID, nil, 0),
	} {
		if said(err) != "forbidden" {
			t.Errorf("%s by a stranger: %v", name, err)
		}
	}
}
