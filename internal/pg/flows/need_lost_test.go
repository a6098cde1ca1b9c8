package flows_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/pgtest/cut"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/sequencer"
)

// behindCutter opens a store whose one connection can be cut at a statement.
func (w *world) behindCutter() (*stores.Store, *cut.Cutter) {
	w.T.Helper()
	url := pgtest.URL(w.S.Pool())
	c := cut.New(w.T, url)
	pool, err := pg.Connect(w.Ctx, c.URL(url), 1)
	w.Must(err)
	w.T.Cleanup(pool.Close)
	s, err := stores.Open(w.Ctx, pool, pgworld.Quiet)
	w.Must(err)
	s.SetNow(&w.Now)
	return s, c
}

// pollNeed has the core ask about the one prerequisite that is not waited for any more, and end its transaction.
func (w *world) pollNeed() {
	w.T.Helper()
	woken, err := w.S.Wake(w.Ctx, w.node, 10, 10)
	w.Must(err)
	if len(woken.Polls) != 1 {
		w.T.Fatalf("%d polls, want that of the prerequisite", len(woken.Polls))
	}
	l := woken.Polls[0]
	status := w.S.Flows.StatusBatch(w.Ctx, l.Hashes())[0]
	if status.State != outbox.StatusFailed || !status.Final {
		w.T.Fatalf("%+v, want a failure that is final", status)
	}
	a := &pg.Answer{Lease: l, StartedAt: w.Now, Step: sequencer.Polled(l.Flight(0), status, l.Dispatcher.Dispatcher,
		0.5)}
	a.Result.Hash = status.Hash
	w.Settle(a)
}

// The sweep that ends a prerequisite whose time is over dies with each of its statements, before it, behind it, and
// with the commit done and its answer lost. The next turn of any process ends the job all the same.
func TestAPrerequisiteEndsThoughItsSweepIsCutOff(t *testing.T) {
	t.Parallel()
	for _, at := range []cut.Where{cut.Before, cut.After, cut.Answered} {
		w := newWorld(t)
		j, err := w.S.Flows.PostJob(w.Ctx, w.By, flow.Spec{Script: "1", ScriptType: "python", Timeout: time.Minute,
			Prerequisites: []string{"ok"}, NeedTimeout: time.Hour}, "")
		w.Must(err)
		w.offer()
		w.Later(2 * time.Hour)
		s, cutter := w.behindCutter()
		reached := false
		for n := 1; !reached; n++ { // the sweep of needs is the last statement of a lapse
			var ended bool
			cutter.Arm(&cut.Point{Statement: n, Where: at}, nil)
			_, err := s.Flows.Lapse(w.Ctx)
			cut := len(cutter.Disarm()) > 0
			w.Scan(`SELECT ended_at IS NOT NULL FROM postern.job_need`, &ended)
			reached = ended || !cut
			if cut && fault.KindOf(err) == "" {
				t.Errorf("%s statement %d: no error", at, n)
			}
		}
		// a next turn: the session that was cut off may keep its row locks for a moment
		for ended, limit := false, time.Now().Add(time.Minute); !ended && time.Now().Before(limit); {
			if _, err := w.S.Flows.Lapse(w.Ctx); err != nil {
				t.Error(err)
			}
			w.Scan(`SELECT ended_at IS NOT NULL FROM postern.job_need`, &ended)
		}
		if n, _, err := w.S.Flows.Unsettled(w.Ctx); n != 1 || err != nil {
			t.Fatalf("%s: the core was to ask about %d prerequisites (%v), want 1", at, n, err)
		}
		w.pollNeed()
		if n, _, err := w.S.Flows.Unsettled(w.Ctx); n != 1 || err != nil {
			t.Errorf("%s: before the end of its transaction is read %d are open (%v), want 1", at, n, err)
		}
		_, err = w.S.Flows.Advance(w.Ctx)
		w.Must(err)
		got, err := w.S.Flows.Job(w.Ctx, w.ID, j.ID)
		w.Must(err)
		if got.Status != flow.JobError || got.Code != flow.CodeNeedTimeout {
			t.Errorf("%s: the job is %s %q, want error %q", at, got.Status, got.Code, flow.CodeNeedTimeout)
		}
		if n, _, err := w.S.Flows.Unsettled(w.Ctx); n != 0 || err != nil {
			t.Errorf("%s: %d are open (%v), want none", at, n, err)
		}
	}
}
