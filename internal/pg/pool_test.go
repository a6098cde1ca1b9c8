package pg_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
)

// Whoever needs a pool locks its row, so that a removal which is open at the same time comes before or after.
func TestAPoolIsNotRemovedUnderWhoNeedsIt(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	_, err := a.s.PutPool(a.ctx, a.by, pg.Pool{Name: "spare", AfterFailure: "keep", BlockFor: time.Hour}, 0)
	a.must(err)
	a.ready()
	remove := op{name: "remove the pool", run: func(a *arena, s *stores.Store) string { return refusal(s.RemovePool(a.ctx, a.by, "spare")) }}
	sender := op{name: "put a sender", run: func(a *arena, s *stores.Store) string {
		_, err := s.PutSender(a.ctx, a.by, pg.Sender{Account: "acct-9", Pool: "spare"}, 0)
		return refusal(err)
	}}
	dispatcher := op{name: "put a dispatcher", run: func(a *arena, s *stores.Store) string {
		d := outbox.DefaultDispatcher()
		d.Type, d.WorkerURL, d.Pool = "S", "http://127.0.0.1:1/", "spare"
		_, err := s.PutDispatcher(a.ctx, a.by, d, 0)
		return refusal(err)
	}}
	queue := op{name: "put a queue", held: 2, run: func(a *arena, s *stores.Store) string {
		_, err := s.PutQueue(a.ctx, a.by, pg.Queue{Name: "q9", Pool: "spare", WhenFull: "refuse", OnFailure: "continue"}, 0)
		return refusal(err)
	}}
	for _, x := range []op{sender, dispatcher, queue} {
		for _, pair := range [][2]op{{x, remove}, {remove, x}} {
			a.kept.back(t, a.ctx)
			if _, _, held := a.together(pair[0], pair[1], true); !held {
				t.Errorf("%s was not held", pair[0].name)
			}
			var lost int
			a.must(a.s.Pool().QueryRow(a.ctx, `SELECT count(*) FROM (SELECT pool_id FROM postern.sender UNION ALL SELECT pool_id FROM postern.dispatcher
				UNION ALL SELECT pool_id FROM postern.queue_name) x WHERE x.pool_id IS NOT NULL AND NOT EXISTS (SELECT FROM postern.pool p WHERE p.pool_id = x.pool_id)`).Scan(&lost))
			if lost != 0 {
				t.Errorf("%s while %s was open: %d rows name a pool that is gone", pair[1].name, pair[0].name, lost)
			}
		}
	}
}

// S1.13: a settle of a failure blocks its sender in the same commit, and a claim that is open at the same time
// takes it only before.
func TestABlamedSenderTakesNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", func(d *outbox.Dispatcher) { d.Pool = "p" })
	w.sender("p", "acct-1")
	_, err := w.s.PutPool(w.ctx, w.by, pg.Pool{Name: "p", AfterFailure: "block", BlockFor: time.Hour}, 0)
	w.must(err)
	w.post("q", "T", "a", "b")
	w.post("r", "T", "c")
	n := w.node("n")
	l := w.claim(n, everything())
	out := w.settle(w.answer(l[0], outbox.Answer{Class: outbox.ClassRejected, Code: "500", Message: "no"}))
	if out[0].Next != nil {
		t.Errorf("the next of the queue went out with a blocked sender: %+v", out[0].Next)
	}
	if got := w.claim(n, everything()); len(got) != 0 {
		t.Errorf("claimed %d with the only sender blocked", len(got))
	}
	s, err := w.s.Sender(w.ctx, w.id, "acct-1")
	w.must(err)
	if s.BlockedUntil == nil || !s.BlockedUntil.Equal(w.now.Add(time.Hour)) || s.BlockReason != "failed: 500 no" {
		t.Errorf("%v %q", s.BlockedUntil, s.BlockReason)
	}
	if err := w.s.RemovePool(w.ctx, w.by, "p"); fault.CodeOf(err) != "in_use" {
		t.Error(err)
	}
}
