package pg

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Suspend keeps a transaction from going out until Resume (S2.21): it keeps its place, and the transactions behind it
// wait. An attempt that is out already goes on; before the next attempt the transaction is held, with its sender, since
// a retry has to replace what that sender sent (pending). Changed is false for one that is suspended, unless Postern
// has suspended it by itself, without an actor: then an actor takes the suspension over, and Postern does not end it.
//
// Why nothing suspended goes out: the mark is written under the lock of its queue, and claim and settle hold this lock
// when they hand something out. A head that stood ready leaves its lane in the same commit. While the queue has a mark,
// each settle reads, behind its lock, the marks of the next transaction and of the one in hand.
func (s *Store) Suspend(ctx context.Context, by db.By, id outbox.ID) (LeverResult, error) {
	pull := func(_ *db.Txn, h *inHand, b *pgx.Batch) (r LeverResult, err error) {
		if h.state.Terminal() {
			return r, fault.New(fault.Conflict, "wrong_state", "transaction %s is %s already: nothing is left to suspend", id, h.state)
		}
		if r.Pending = h.state != outbox.WAITING; r.Pending {
			r.At = "before it would go out again"
		}
		r.Changed = !h.suspended || h.ours && by.Actor != ""
		switch {
		case !h.suspended:
			e, q := h.e, h.q
			e.marks = append(e.marks, markRow{id.Queue, id.Seq, "suspended", by.Reason, by.Actor})
			q.Marks++
			if q.Cur == 0 && q.First() == id.Seq {
				e.leave(q)
				q.NotBefore = zeroTime
				e.enter(q, outbox.PhaseHeld)
			}
			e.save(q)
		case r.Changed:
			// Why Postern does not end it all the same: its Resume holds the lock of the queue as well. Either that has
			// ended the suspension before, and the case above writes a new one, or it waits, and finds the actor.
			b.Queue(`UPDATE postern.mark SET reason = $3, actor = $4, at = $5
				WHERE (queue_id, seq, kind) = ($1, $2, 'suspended')`, id.Queue, id.Seq, by.Reason, by.Actor, h.e.now)
		}
		return r, nil
	}
	return s.onTransaction(ctx, by, "suspend", id, pull)
}

// Resume ends a suspension: the transaction goes out when its turn comes, or has come. Postern itself, without an
// actor, leaves alone what an actor has suspended or taken over.
func (s *Store) Resume(ctx context.Context, by db.By, id outbox.ID) (LeverResult, error) {
	pull := func(t *db.Txn, h *inHand, _ *pgx.Batch) (r LeverResult, err error) {
		if h.state.Terminal() {
			return r, fault.New(fault.Conflict, "wrong_state", "transaction %s is %s already", id, h.state)
		}
		if r.Changed = h.suspended && (h.ours || by.Actor != ""); r.Changed {
			e, q := h.e, h.q
			e.unmarks = append(e.unmarks, markRow{Queue: id.Queue, Seq: id.Seq, Kind: "suspended"})
			q.Marks--
			switch {
			case q.Cur == 0 && q.First() == id.Seq && !h.held:
				e.leave(q)
				if err := e.rest(q, h.task, false); err != nil {
					return r, err
				}
			case q.Cur == id.Seq && q.Node == 0 && !h.unknown:
				parked, err := e.parked(ctx, t, q)
				if err != nil {
					return r, err
				}
				if parked { // its worker is asked once more before it is sent
					e.timerSet[q.ID] = e.now
				}
			}
			e.save(q)
		}
		return r, nil
	}
	return s.onTransaction(ctx, by, "resume", id, pull)
}

// parked says whether what is in flight has been held before it would go out again: then nothing but a lever
// moves it, neither a timer nor a place in the lane resume.
func (e *effects) parked(ctx context.Context, t *db.Txn, q *QueueRow) (parked bool, err error) {
	k := e.key(q)
	b := &pgx.Batch{}
	b.Queue(ParkedSQL, q.ID, k.Lane, k.Prio, k.Since).QueryRow(func(row pgx.Row) error { return row.Scan(&parked) })
	return parked, t.Send(ctx, b)
}

// ParkedSQL says whether a queue ($1) neither waits for a time nor stands at its place in a lane ($2 to $4).
const ParkedSQL = `SELECT NOT EXISTS (SELECT FROM postern.timer WHERE queue_id = $1)
	AND NOT EXISTS (SELECT FROM postern.ready WHERE (lane, prio, since, queue_id) = ($2, $3, $4, $1))`

// park holds what is in flight before it would go out again.
func (st *settlement) park(q *QueueRow) {
	q.Node, q.NodeEpoch, q.NotBefore = 0, 0, zeroTime
	st.e.timerDel = append(st.e.timerDel, q.ID)
}
