package pg

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/sequencer"
)

// Settler gathers the answers that come in while a commit is in flight into the next one.
type Settler struct {
	s *Store
	g db.Group[*Answer, Settled]
}

// NewSettler returns a Settler over s.
func NewSettler(s *Store) *Settler {
	st := &Settler{s: s}
	st.g.Name = "settle"
	st.g.Limit, st.g.AtOnce = 256, 2
	st.g.Run, st.g.Partable = s.settleGathered, s.Partable
	return st
}

// Settle records one answer together with the others that came in meanwhile. An end that others depend on is recorded
// by itself, so that it does not hold up the rest: thousands may depend on it.
func (st *Settler) Settle(ctx context.Context, a *Answer) (Settled, error) {
	out, err := st.g.Do(ctx, a)
	if err == nil && out.apart {
		out = st.s.settleWatched(context.WithoutCancel(ctx), a)
	}
	if err == nil {
		err = out.Err
	}
	return out, err
}

// settleGathered settles answers in one commit. One that goes alone, and holds a value that PostgreSQL refuses, is
// settled without what the worker sent along.
func (s *Store) settleGathered(ctx context.Context, answers []*Answer) ([]Settled, error) {
	out, err := s.settleTogether(ctx, answers)
	if len(answers) > 1 || !refusedValue(err) {
		return out, err
	}
	plain := *answers[0]
	if len(plain.Result.Done)+len(plain.Result.Data)+len(plain.Result.Members) == 0 {
		return out, err
	}
	plain.Result.Done, plain.Result.Data, plain.Result.Members = nil, nil, nil
	plain.Step.Message = strings.TrimSpace(plain.Step.Message + " (what the worker sent along could not be stored)")
	return s.settleTogether(ctx, []*Answer{&plain})
}

// Settle records answers in one commit, each with what was decided about it, and hands out the next of each queue. It
// never calls a position before the one before it is durable: Next is returned after the commit.
//
// Why a late process changes nothing: the row is locked, and its fence, phase and position are compared with those of
// the lease; a process that took the queue since has raised the fence. Why a second outcome is impossible: its key
// refuses it. Why nothing cancelled goes out: a cancel writes marks under the same lock, and with marks > 0 the next
// one is looked for by its missing outcome, in a statement of its own behind the lock.
//
// The row is written lazily: while the same owner goes on with the next of the queue on its first attempt and nothing
// is marked, only the outcome is written (see the view tx and trueCur).
//
// The end of a transaction that others depend on (S2.15) is left out of the common commit: it has to lock their
// queues as well, and gets a transaction of its own.
func (s *Store) Settle(ctx context.Context, answers []*Answer) ([]Settled, error) {
	out, err := s.settleTogether(ctx, answers)
	if err != nil {
		return out, err
	}
	for i, a := range answers {
		if out[i].apart {
			out[i] = s.settleWatched(ctx, a)
		}
	}
	return out, nil
}

// settleTogether settles all answers in one commit but the ends that others wait for, which it marks apart.
func (s *Store) settleTogether(ctx context.Context, answers []*Answer) (out []Settled, err error) {
	if s.recallable(answers) {
		if out, err = s.settleBy(ctx, answers, true); db.SQLState(err) != guardFailed {
			return out, err
		}
		s.forgetful.Store(recallAgain)
	}
	return s.settleBy(ctx, answers, false)
}

// settleBy settles in one commit, by what the leases remember or by what the rows say.
func (s *Store) settleBy(ctx context.Context, answers []*Answer, byMemory bool) (out []Settled, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		apart := 0
		st := newSettlement(s, answers)
		out = st.out
		b := &pgx.Batch{}
		if byMemory {
			st.recall(b)
		} else if err := st.load(ctx, t); err != nil {
			return err
		}
		var lacks missing
		for i, a := range answers {
			if a.Step.Then == sequencer.ThenEnd && st.watched[positionOf(a.Lease.ID())] && st.holds(a) {
				out[i].apart = true
				apart++
				continue
			}
			if gap := st.gap(a); gap != nil {
				s.leaveOut(gap)
				out[i].Err = gap
				continue
			}
			if err := lacks.add(st.answer(i, a)); err != nil {
				return err
			}
		}
		if err := lacks.err(); err != nil {
			return err
		}
		if apart == len(answers) {
			return t.Rollback(ctx)
		}
		return st.e.commit(ctx, t, b)
	})
	return out, err
}

// settleWatched records the end of a transaction that others depend on, and what it means for them, in one
// SQL transaction.
func (s *Store) settleWatched(ctx context.Context, a *Answer) Settled {
	id := a.Lease.ID()
	r, err := s.reachOf(ctx, id, a.Step.State == outbox.DONE, position{})
	if err != nil {
		return Settled{Err: err}
	}
	var st *settlement
	err = s.Run(ctx, func(t *db.Txn) error {
		st = newSettlement(s, []*Answer{a})
		st.deps = r
		if err := st.load(ctx, t); err != nil {
			return err
		}
		if st.holds(a) {
			if err := r.apply(st.e, st.queues, a.Step.State); err != nil {
				return err
			}
			r.releases(st.next[positionOf(id)])
		}
		if err := st.answer(0, a); err != nil {
			return err
		}
		return st.e.commit(ctx, t, &pgx.Batch{})
	})
	if err != nil {
		return Settled{Err: err}
	}
	return st.out[0]
}

func newSettlement(s *Store, answers []*Answer) *settlement {
	return &settlement{s: s, e: newEffects(s), answers: answers, out: make([]Settled, len(answers)),
		queues: make(map[int64]*QueueRow, len(answers)), next: make(map[position]*Task, len(answers))}
}
