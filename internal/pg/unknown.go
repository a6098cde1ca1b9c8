package pg

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/sequencer"
)

// hold keeps a transaction whose outcome is not known, and whose worker cannot be asked, until an operator says what
// came of it: WasDone, WasNotDone or Abandon (S2.10). It stays in flight under the mark unknown, without owner, timer
// or place in a lane, so that no claim, timer, release or reconciliation finds it. Its sender is free for others. The
// transaction stays pinned to that sender, which alone knows its token. An exclusive lane stays taken: the call may
// still have an effect.
//
// A second settlement of the same answer changes nothing, since the fence rises in the same commit.
func (st *settlement) hold(q *QueueRow, a *Answer) {
	l, step := a.Lease, a.Step
	st.e.leave(q)
	q.at(l.Task)
	q.Attempt, q.Retries = step.Attempt, step.Retries
	if step.Fee != "" {
		q.Fee = step.Fee
	}
	q.pin(l.Task, step, q.Sender)
	st.blame(q, a)
	if q.Sender != 0 {
		st.e.senderFree = append(st.e.senderFree, senderFree{Sender: q.Sender})
	}
	q.Sender, q.Node, q.NodeEpoch, q.NotBefore = 0, 0, 0, zeroTime
	q.Fence = st.s.Fence(q.Fence, st.e.now)
	st.e.marks = append(st.e.marks, markRow{q.ID, l.ID().Seq, "unknown", step.Message, ""})
	q.Marks++
}

// WasDone ends a transaction that is held DONE, by an operator's word. Outcomes: Changed; NotFound; Conflict
// "wrong_state" for one that is not held.
func (s *Store) WasDone(ctx context.Context, by db.By, id outbox.ID) (r LeverResult, err error) {
	if err := says(by, "was-done"); err != nil {
		return r, err
	}
	deps, err := s.reachOf(ctx, id, true, position{})
	if err != nil {
		return r, err
	}
	err = s.Run(ctx, func(t *db.Txn) error {
		h, err := s.holdAll(ctx, t, by, "was-done", id, deps)
		if err != nil {
			return err
		}
		step, err := h.found(id, true)
		if err != nil {
			return err
		}
		var next *Task
		b := &pgx.Batch{}
		nextUnsettled(b, h.q, []int64{id.Seq}, func(t *Task) { next = t })
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if err := deps.apply(h.e, h.rows, outbox.DONE); err != nil {
			return err
		}
		deps.releases(next)
		h.ends(id, step)
		if err := h.goesOn(next); err != nil {
			return err
		}
		r = LeverResult{Changed: true}
		b = &pgx.Batch{}
		s.AuditIn(b, by, "was-done", TxPath(id))
		return h.e.commit(ctx, t, b)
	})
	return r, err
}

// ends writes the outcome of what was held, as an operator says it: by the sender that it was pinned to.
func (h *inHand) ends(id outbox.ID, step sequencer.Step) {
	q := h.q
	o := &outcomeRow{ID: id, Callback: h.task.Callback, Type: h.task.Type, Context: q.Context, Was: h.state,
		State: step.State, Attempt: q.Attempt, Retries: q.Retries, Fence: q.Fence, Sender: q.Pin, Fee: q.Fee,
		StartedAt: q.EnteredAt}
	if d := h.e.view.dispatcherOf(q.Context, h.task.Type); d != nil && d.HasHooks() {
		o.Hook = step.Hook
	}
	h.e.outcomes = append(h.e.outcomes, o)
}

// goesOn lets the queue of what was held go on with the next transaction, under a higher fence; nil: there is none.
func (h *inHand) goesOn(next *Task) error {
	e, q := h.e, h.q
	e.leave(q)
	q.Fence = e.s.Fence(q.Fence, e.now)
	e.free(q, "", false)
	if err := e.rest(q, next, true); err != nil {
		return err
	}
	e.keep(q)
	return nil
}

// WasNotDone lets a transaction that is held go out again, by an operator's word: under the same token, by the sender
// that it is pinned to, and without using up a retry. Outcomes: Changed; NotFound; Conflict "wrong_state" for one that
// is not held.
func (s *Store) WasNotDone(ctx context.Context, by db.By, id outbox.ID) (LeverResult, error) {
	if err := says(by, "was-not-done"); err != nil {
		return LeverResult{}, err
	}
	pull := func(_ *db.Txn, h *inHand, _ *pgx.Batch) (r LeverResult, err error) {
		if _, err := h.found(id, false); err != nil {
			return r, err
		}
		e, q := h.e, h.q
		e.leave(q)
		q.Fence = s.Fence(q.Fence, e.now)
		e.unmarks = append(e.unmarks, markRow{Queue: id.Queue, Seq: id.Seq, Kind: "unknown"})
		q.Marks--
		e.free(q, "", false)
		h.task.Held = h.suspended
		if err := e.rest(q, h.task, false); err != nil {
			return r, err
		}
		e.save(q)
		return LeverResult{Changed: true}, nil
	}
	return s.onTransaction(ctx, by, "was-not-done", id, pull)
}

// says refuses a lever without a reason, where that is how an operator found out what happened outside.
func says(by db.By, lever string) error {
	if by.Reason == "" {
		return fault.At("/reason", "%s wants a reason: how it was found out what came of it", lever)
	}
	return nil
}

// found decides about a transaction that is held; for any other it returns a Conflict.
func (h *inHand) found(id outbox.ID, done bool) (sequencer.Step, error) {
	if !h.unknown || h.state != outbox.DISPATCHING {
		return sequencer.Step{}, fault.New(fault.Conflict, "wrong_state",
			"transaction %s is %s and not held: only what is held, since its outcome is unknown, wants somebody to say so",
			id, h.state)
	}
	step := sequencer.Found(sequencer.Flight{Phase: h.q.Phase, Attempt: h.q.Attempt, Retries: h.q.Retries}, done)
	return step, step.Err
}
