package batches

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/processor"
)

// undelivered is why the transaction of an execution is taken back, and what its batch says of that.
const undelivered = "not delivered in time"

// undeliveredSQL says whether the execution of the batch x of a processor p is to be taken back (S4.14): its domain
// has a limit, which is over; no worker has ever taken anything of the batch; and the transaction i still waits: no
// worker has it, nor has one ever told a hash of it, as of a message that is being sent again, and no call of it may
// have had an effect, as one that a gateway answered. An execution that is out, or may be, is never taken back: the
// core finds out about it.
const undeliveredSQL = limitedSQL + ` AND x.updated_at + p.deliver_within <= n.now
	AND EXISTS (SELECT FROM postern.queue q WHERE q.queue_id = i.queue_id AND q.cur_seq IS NULL AND q.head_seq <= q.tail_seq)
	AND NOT ` + takenSQL + ` AND ` + nothingDoneSQL

// limitedSQL says whether the execution of the batch x of a processor p has a limit. One whose batch a worker has taken
// something of has none: it was delivered, and its next contract may be away like that of a domain without a limit.
const limitedSQL = `(p.deliver_within > '0' AND NOT x.delivered)`

// lateSQL says whether an execution is to be taken back, for either reason. One that has a limit waits for that.
const lateSQL = `(` + undeliveredSQL + ` OR NOT ` + limitedSQL + ` AND ` + awaySQL + `)`

// takenSQL says whether a worker has told a hash of the transaction i.
const takenSQL = `EXISTS (SELECT FROM postern.attempt t WHERE (t.queue_id, t.seq, t.day) = (i.queue_id, i.seq, i.day) AND t.hash IS NOT NULL OFFSET 0)`

// takeBack cancels an execution that no worker took in time, and so says that it was not delivered, or, where it has no
// limit, that its worker is away. The cancel looks again behind the lock of its queue: if a worker was called meanwhile
// it is refused, also where the call is over, and the execution goes on.
func (s *Store) takeBack(ctx context.Context, contextID int32, v *Batch, limited bool) error {
	by := db.By{Context: contextID, Via: "tick"}
	id, err := s.ByUID(ctx, contextID, v.runUID())
	if err == nil {
		if by, err = s.stillLate(ctx, by, id, limited); err != nil || by.Reason == "" {
			return err
		}
	}
	if err == nil {
		_, err = s.Cancel(ctx, by, id)
	}
	if fault.KindOf(err) == fault.Conflict {
		return nil
	}
	if err != nil {
		return err
	}
	return s.askExecution(ctx, contextID, v)
}

// endTTL ends a batch that was not delivered, and not sent again while its ttl lasted.
func (s *Store) endTTL(ctx context.Context, contextID int32, name string, id int64) error {
	return s.onProcessor(ctx, contextID, name, func(t *db.Txn, h *heldProcessor) error {
		v, err := h.one(ctx, t, id)
		if err != nil {
			return err
		}
		if v.State != processor.TimedOut || v.TTL.After(h.now) { // it was sent again, or evicted, meanwhile
			return t.Rollback(ctx)
		}
		return h.bringOn(ctx, t, v, processor.TTLOver, db.By{})
	})
}

// Resend sends a batch that was not delivered again, under its id (S4.14): it stands at the back of its line. Anyone
// may. Outcomes: the batch, Queued, or, when its ttl is over, ended as Timeout(false); NotFound; Conflict
// "Messages are not retriable" for any other.
func (s *Store) Resend(ctx context.Context, by db.By, label string, id int64) (v *Batch, err error) {
	found, err := s.batches(ctx, ` WHERE b.batch_id = $1 AND b.context_id = $2 AND b.label = $3`, id, by.Context, label)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fault.New(fault.NotFound, "not_found",
			"authorization %q has no execution %d", fault.Clip(label), id)
	}
	err = s.onProcessor(ctx, by.Context, found[0].Processor, func(t *db.Txn, h *heldProcessor) error {
		if v, err = h.one(ctx, t, id); err != nil {
			return err
		}
		if v.State != processor.TimedOut {
			return fault.New(fault.Conflict, "wrong_state", "Messages are not retriable").With("state", string(v.State))
		}
		return h.bringOn(ctx, t, v, processor.Retried, by)
	})
	if err != nil {
		return nil, err
	}
	return v, nil
}

// bringOn decides what an event does to a batch, stores that, and commits.
func (h *heldProcessor) bringOn(ctx context.Context, t *db.Txn, v *Batch, on processor.Event, by db.By) error {
	st, err := v.Decide(on, h.facts())
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	if err := h.store(ctx, t, b, v, change{step: st, actor: by.Actor, reason: by.Reason}); err != nil {
		return err
	}
	h.saveLines(b)
	return t.Commit(ctx, b)
}
