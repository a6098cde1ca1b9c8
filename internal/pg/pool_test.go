package pg_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// A statement that makes a sender, a type or a queue need a pool locks the row of the pool, so that a removal which is
// open at the same time comes before or after.
func TestAPoolIsNotRemovedUnderWhoNeedsIt(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	_, err := a.S.PutPool(a.Ctx, a.By, pg.Pool{Name: "spare", AfterFailure: "keep", BlockFor: time.Hour}, 0)
	a.Must(err)
	a.ready()
	remove := op{name: "remove the pool", run: func(a *arena, s *stores.Store) string { return refusal(s.RemovePool(a.Ctx, a.By, "spare")) }}
	sender := op{name: "put a sender", run: func(a *arena, s *stores.Store) string {
		_, err := s.PutSender(a.Ctx, a.By, pg.Sender{Account: "acct-9", Pool: "spare"}, 0)
		return refusal(err)
	}}
	dispatcher := op{name: "put a dispatcher", run: func(a *arena, s *stores.Store) string {
		d := outbox.DefaultDispatcher()
		d.Type, d.WorkerURL, d.Pool = "S", "http://127.0.0.1:1/", "spare"
		_, err := s.PutDispatcher(a.Ctx, a.By, d, 0)
		return refusal(err)
	}}
	queue := op{name: "put a queue", held: 2, run: func(a *arena, s *stores.Store) string {
		_, err := s.PutQueue(a.Ctx, a.By, pg.Queue{Name: "q9", Pool: "spare", WhenFull: "refuse", OnFailure: "continue"}, 0)
		return refusal(err)
	}}
	for _, x := range []op{sender, dispatcher, queue} {
		for _, pair := range [][2]op{{x, remove}, {remove, x}} {
			a.kept.back(t, a.Ctx)
			if _, _, held := a.together(pair[0], pair[1], true); !held {
				t.Errorf("%s was not held", pair[0].name)
			}
			var lost int
			a.Must(a.S.Pool().QueryRow(a.Ctx, `SELECT count(*) FROM (SELECT pool_id FROM postern.sender UNION ALL SELECT pool_id FROM postern.dispatcher
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
	w.Dispatcher("T", func(d *outbox.Dispatcher) { d.Pool = "p" })
	w.Sender("p", "acct-1")
	_, err := w.S.PutPool(w.Ctx, w.By, pg.Pool{Name: "p", AfterFailure: "block", BlockFor: time.Hour}, 0)
	w.Must(err)
	w.Post("q", "T", "a", "b")
	w.Post("r", "T", "c")
	n := w.Node("n")
	l := w.Claim(n, pgworld.Everything())
	out := w.Settle(w.Answer(l[0], outbox.Answer{Class: outbox.ClassRejected, Code: "500", Message: "no"}))
	if out[0].Next != nil {
		t.Errorf("the next of the queue went out with a blocked sender: %+v", out[0].Next)
	}
	if got := w.Claim(n, pgworld.Everything()); len(got) != 0 {
		t.Errorf("claimed %d with the only sender blocked", len(got))
	}
	s, err := w.S.Sender(w.Ctx, w.ID, "acct-1")
	w.Must(err)
	if s.BlockedUntil == nil || !s.BlockedUntil.Equal(w.Now.Add(time.Hour)) || s.BlockReason != "failed: 500 no" {
		t.Errorf("%v %q", s.BlockedUntil, s.BlockReason)
	}
	if err := w.S.RemovePool(w.Ctx, w.By, "p"); fault.CodeOf(err) != "in_use" {
		t.Error(err)
	}
}
