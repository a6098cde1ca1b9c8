package pg_test

import (
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// reconcileParts goes through a round of questions to its end, as an operator does: in each part the worker says
// nothing of the first transaction, and has seen none of the others.
func (w *world) reconcileParts(s *stores.Store, q pg.Quarantine) error {
	const atOnce = 2
	for {
		v, err := s.ReconcileRound(w.Ctx, w.By, q, false)
		if err != nil {
			return err
		}
		part, err := s.NextUnended(w.Ctx, v, atOnce)
		if err != nil {
			return err
		}
		r := pg.Reconciliation{Part: part, Last: len(part) < atOnce}
		for i, u := range part {
			if i == 0 {
				r.Open = append(r.Open, pg.Unreconciled{ID: u.ID, Type: u.Type, Why: pg.OpenUnreachable,
					Detail: "silent"})
				continue
			}
			r.Unknown++
		}
		if err := s.ReconcileStep(w.Ctx, v, r); err != nil || r.Last {
			return err
		}
	}
}

// quarantineRoom is a stage in which a type is in quarantine, a node is dead that had two queues of it in hand, and
// five transactions have not ended.
func quarantineRoom(w *world) []roomOp {
	w.Dispatcher("T", nil)
	n := w.Node("n")
	w.Post("q", "T", "a", "b", "c")
	w.Post("r", "T", "d")
	w.Claim(n, pgworld.Everything())
	w.Post("s", "T", "e")
	q := pg.Quarantine{Context: "default", Type: "T", Reason: "a restore", LostFrom: w.Now.Add(-time.Hour),
		LostUntil: w.Now}
	w.Must(w.S.EnterQuarantine(w.Ctx, w.By, q))
	w.Lever(w.S.AnnounceDeployment(w.Ctx, w.By, "there"))
	w.Later(time.Minute)
	enter := func(q pg.Quarantine) func(s *stores.Store) error {
		return func(s *stores.Store) error { return s.EnterQuarantine(w.Ctx, w.By, q) }
	}
	earlier := q
	earlier.LostFrom = q.LostFrom.Add(-time.Hour)
	const life = `SELECT life::text FROM postern.store`
	return []roomOp{
		{name: "enter everything", keeps: life, run: enter(pg.Quarantine{Reason: "a restore"})},
		{name: "enter a context", run: enter(pg.Quarantine{Context: "default", Reason: "a doubt"})},
		{name: "enter a type again", run: enter(earlier)},
		{name: "reconcile", run: func(s *stores.Store) error { return w.reconcileParts(s, q) }},
		{name: "record what a worker did", run: func(s *stores.Store) error { return w.recordFirst(s, q) }},
		{name: "find another deployment", keeps: life, run: func(s *stores.Store) error {
			_, err := s.CompareDeployment(w.Ctx, w.By, "here")
			return err
		}},
		{name: "announce a deployment", run: func(s *stores.Store) error {
			_, err := s.AnnounceDeployment(w.Ctx, w.By, "here")
			return err
		}},
		{name: "release", run: func(s *stores.Store) error {
			_, err := s.ReleaseQuarantine(w.Ctx, w.By, q, true)
			if fault.CodeOf(err) == "wrong_state" { // there is none: it was released before
				return nil
			}
			return err
		}},
	}
}

// recordFirst has the worker know the first attempt of transaction a, unless that is known.
func (w *world) recordFirst(s *stores.Store, q pg.Quarantine) error {
	v, err := s.ReconcileRound(w.Ctx, w.By, q, false)
	if err != nil {
		return err
	}
	part, err := s.NextUnended(w.Ctx, v, 1)
	if err != nil || part[0].UID != "a" || part[0].Attempt > 1 {
		return err
	}
	_, err = s.Reconciled(w.Ctx, part[0], 1, 2,
		outbox.Status{State: outbox.StatusIncluded, Hash: "0x1", BlockHeight: "1", Confirmations: 1})
	return err
}

// retentionRoom is a stage with a day that is to be dropped, with two transactions that have ended and two that have
// not, a message that has ended and one that has not, and one that a peer has stopped before it came.
func retentionRoom(w *world) []roomOp {
	l := newLetters(w)
	w.Dispatcher("T", nil)
	n := w.Node("n")
	w.Post("q", "T", "ended")
	w.Post("r", "T", "too")
	for _, lease := range w.Claim(n, pgworld.Everything()) {
		w.Settle(w.Answer(lease, pgworld.Done()))
	}
	late, after := w.Sub("late", "T", "late"), w.Sub("after", "T", "after")
	late.NotBefore = w.Now.Add(60 * 24 * time.Hour)
	after.DependsOn = []string{"late", "ended"}
	for _, a := range w.Ingest(w.S, late, after) {
		w.Must(a.Err)
	}
	l.sent(l.toShop("ends"))
	held := l.received(time.Hour)
	_, err := w.S.Messages.Processed(w.Ctx, l.shop, held.ID, held.Fence)
	w.Must(err)
	l.sent(l.toShop("stays"))
	l.Must(l.S.Messages.Stop(w.Ctx, l.shop.Context, "near", []uuid.UUID{l.brought("never came").ID}, nil))
	w.Exec(`UPDATE postern.delivery SET state = 'delivered', next_at = NULL WHERE state = 'pending'`) // the hooks
	begin := w.Now
	days := func() { // as they were, with the partitions that are dropped
		for _, table := range []string{"task", "outcome", "attempt", "delivery"} {
			w.Exec(`DROP TABLE IF EXISTS postern.` + table + `_old`)
		}
		w.Exec(`SELECT postern.ensure_days($1::date, $1::date, 'day')`, begin)
	}
	return []roomOp{
		{name: "retain", before: days, run: func(s *stores.Store) error {
			w.At(begin.Add(40 * 24 * time.Hour))
			_, err := s.Retain(w.Ctx, pgworld.AMonth)
			return err
		}},
		{name: "purge a type", before: days, run: func(s *stores.Store) error {
			_, _, err := s.PurgeDispatcher(w.Ctx, w.By, "T", 10)
			return err
		}},
		{name: "forget nodes", before: days, run: func(s *stores.Store) error {
			w.At(begin.Add(72 * time.Hour))
			if _, err := s.Bury(w.Ctx); err != nil {
				return err
			}
			if _, err := s.Release(w.Ctx); err != nil {
				return err
			}
			w.At(begin.Add(144 * time.Hour))
			return s.Forget(w.Ctx)
		}},
	}
}
