package batches

import (
	"bytes"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/processor"
)

// Outcomes of a tick, of a callback, and of what brings an execution on.
const (
	TickRotated   = "rotated"   // it cools, and stands at the back now
	TickExecuting = "executing" // the worker is being called
	TickRequeued  = "requeued"  // its next action, or its next try, waits at the back
	TickWaiting   = "waiting"   // for its callback, or, where the peer could not be reached, to be sent again
	TickFinished  = "finished"  // with a result
)

// Ticked is what a tick did with the batch it looked at.
type Ticked struct {
	Outcome string
	Batch   *Batch
}

// outcomeOf names what a decision about a batch led to.
func outcomeOf(st processor.Step) string {
	switch {
	case st.State == processor.Done:
		return TickFinished
	case st.State == processor.Executing:
		return TickExecuting
	case st.State == processor.WaitingCallback, st.State == processor.TimedOut:
		return TickWaiting
	case st.From == processor.Queued:
		return TickRotated
	}
	return TickRequeued
}

// Tick looks at one batch (S4.4), in this order: Conflict "processor_paused"; Conflict "busy" while another one is
// being executed; the head of High, else of Med, else Conflict "nothing_to_process"; expired, it ends; in its
// cooldown, it goes to the back; else it is executed, and this returns once that has begun.
//
// Two ticks at once come one after the other by the lock of the processor, and the second finds the batch of the
// first Executing (one_execution_per_processor says so too). That commit is the intent. The transaction that is then
// posted has a uid made of batch and run: a tick that dies after the commit, or two processes that bring it on, post
// one transaction.
func (s *Store) Tick(ctx context.Context, by db.By, name string) (Ticked, error) {
	if err := s.AdvanceProcessor(ctx, by.Context, name); err != nil {
		return Ticked{}, err
	}
	return s.tick(ctx, by, name, false)
}

// TickDue is Tick for a processor that ticks by itself: a zero Ticked when its interval is not over, which is compared
// behind the lock, or when nothing is to be done. If the transaction of the batch that is being executed has ended, the
// same commit ends this batch, and TickDue returns it unless it begins another one. If the transaction has not ended,
// AdvanceProcessor knows more.
func (s *Store) TickDue(ctx context.Context, by db.By, name string) (Ticked, error) {
	out, err := s.tick(ctx, by, name, true)
	switch fault.CodeOf(err) {
	case "processor_paused", "nothing_to_process", "busy", "not_found":
		return Ticked{}, nil
	}
	return out, err
}

func (s *Store) tick(ctx context.Context, by db.By, name string, due bool) (out Ticked, err error) {
	err = s.onProcessor(ctx, by.Context, name, func(t *db.Txn, h *heldProcessor) error {
		out = Ticked{}
		a, err := h.see(ctx, t)
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		var ended *Batch
		if due {
			if ended, err = h.concluded(ctx, t, b, &a); err != nil {
				return err
			}
		}
		var v *Batch
		if !due || h.TickInterval > 0 && (h.tickedAt == nil || !h.now.Before(h.tickedAt.Add(h.TickInterval))) {
			if v, err = h.next(ctx, t, b, &a); err != nil && !(ended != nil && fault.KindOf(err) == fault.Conflict) {
				return err
			}
		}
		switch {
		case v == nil && ended == nil:
			return t.Rollback(ctx)
		case v == nil:
			out = Ticked{outcomeOf(processor.Step{Batch: ended.Batch, From: processor.Executing}), ended}
		default:
			st, err := v.Decide(processor.Ticked, h.facts())
			if err != nil {
				return err
			}
			if st.State == processor.Executing {
				h.execute(b, v)
			}
			if err := h.store(ctx, t, b, v, change{step: st, actor: by.Actor, reason: by.Reason}); err != nil {
				return err
			}
			b.Queue(`UPDATE postern.processor SET ticked_at = $2 WHERE processor_id = $1`, h.ID, h.now)
			out = Ticked{outcomeOf(st), v}
		}
		h.saveLines(b)
		return t.Commit(ctx, b)
	})
	if err == nil && out.Outcome == TickExecuting {
		err = s.submit(ctx, by.Context, out.Batch)
	}
	return out, err
}

// sight is what a tick looks at.
type sight struct {
	running *Batch // the batch that is being executed
	hash    []byte // of its transaction, nil while there is none
	outcome outcome
	heads   [len(processor.Priorities)]*Batch
}

// see reads what is executed and who stands at the head of the line that comes first, in one round trip.
func (h *heldProcessor) see(ctx context.Context, t *db.Txn) (a sight, err error) {
	b := &pgx.Batch{}
	b.Queue(`SELECT i.body_hash, `+outcomeColumns+batchColumns+` FROM postern.batch b JOIN postern.processor p ON p.processor_id = b.processor_id
		LEFT JOIN postern.idempotency i ON i.context_id = b.context_id AND i.key = ':processor:' || b.batch_id || ':' || b.run
		LEFT JOIN postern.outcome o ON (o.queue_id, o.seq, o.day) = (i.queue_id, i.seq, i.day)
		WHERE b.processor_id = $1 AND b.state = 'Executing'`, h.ID).Query(func(rows pgx.Rows) error {
		list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Batch, error) {
			v := &Batch{}
			return v, v.scan(row, append([]any{&a.hash}, a.outcome.fields()...)...)
		})
		if len(list) > 0 {
			a.running = list[0]
		}
		return err
	})
	h.lookAtHeads(b, &a)
	err = t.Send(ctx, b)
	return a, err
}

func (h *heldProcessor) lookAtHeads(b *pgx.Batch, a *sight) {
	for _, prio := range processor.Priorities {
		a.heads[prio] = nil
		l := h.lines[prio]
		if l.Length == 0 || prio == processor.Med && h.lines[processor.High].Length > 0 {
			continue
		}
		h.lookAtHead(b, prio, a)
	}
}

// lookAtHead queues in b the read of the head of a line that is not empty.
func (h *heldProcessor) lookAtHead(b *pgx.Batch, prio processor.Priority, a *sight) {
	l := h.lines[prio]
	b.Queue(`SELECT l.place, `+batchColumns+`
		FROM (`+placesUp+`) l
		JOIN postern.batch b ON b.batch_id = l.batch_id
		JOIN postern.processor p ON p.processor_id = b.processor_id`, h.ID, prio, l.Lowest, l.Highest, 0, 1).
		Query(func(rows pgx.Rows) error {
			list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Batch, error) {
				v, place := &Batch{}, int64(0)
				v.place = &place
				return v, v.scan(row, v.place)
			})
			if len(list) > 0 {
				a.heads[prio] = list[0]
			}
			return err
		})
}

// concluded queues in b the end of the batch that is being executed, if its transaction has ended, and returns that
// batch, else nil. The heads of the lines are then read as if that end had been written. This commit tells of it
// before it tells of anything else.
func (h *heldProcessor) concluded(ctx context.Context, t *db.Txn, b *pgx.Batch, a *sight) (*Batch, error) {
	v := a.running
	if v == nil || a.outcome.state == "" || !bytes.Equal(a.hash, v.submission(h.contextID).Hash) {
		return nil, nil
	}
	if err := h.conclude(ctx, t, b, v, a.outcome.of(v)); err != nil {
		return nil, err
	}
	a.running = nil
	h.now = h.now.Add(time.Microsecond)
	if h.dealt { // the heads may have changed
		if err := sendQueued(ctx, t, b); err != nil {
			return nil, err
		}
		again := &pgx.Batch{}
		h.lookAtHeads(again, a)
		return v, t.Send(ctx, again)
	}
	if v.State == processor.Queued && h.lines[v.Priority].Length == 1 {
		a.heads[v.Priority] = v
	}
	return v, nil
}

// next is the batch that a tick looks at. It may send the statements in b.
func (h *heldProcessor) next(ctx context.Context, t *db.Txn, b *pgx.Batch, a *sight) (*Batch, error) {
	if h.Paused {
		return nil, fault.New(fault.Conflict, "processor_paused", "Processor is currently paused")
	}
	if v := a.running; v != nil {
		return nil, fault.New(fault.Conflict, "busy", "batch %d is being executed", v.ID).With("batch", v.ID)
	}
	for _, prio := range processor.Priorities {
		v := a.heads[prio]
		switch {
		case h.lines[prio].Length == 0:
			continue
		case v == nil:
			return nil, fault.New(fault.Internal, "internal", "processor %q: its line %s has %d batches, and no head",
				h.Name, prio, h.lines[prio].Length)
		}
		passes := v.LeftAlone || h.Fair && v.Cools(h.facts())
		if passes && prio == processor.High && h.lines[processor.Med].Length > 0 {
			if med, err := h.pastHigh(ctx, t, b, a); err != nil {
				return nil, err
			} else if med {
				continue
			}
		}
		return v, nil
	}
	return nil, fault.New(fault.Conflict, "nothing_to_process", "There is currently nothing to process")
}

// execute queues in b that an execution begins: its number, and the callback that will be waited for.
func (h *heldProcessor) execute(b *pgx.Batch, v *Batch) {
	v.Runs++
	b.Queue(`INSERT INTO postern.batch_action (batch_id, run, position, started_at) VALUES ($1, $2, $3, $4)`, v.ID,
		v.Runs, v.Index, h.now)
	if c := v.Actions.Confirmation(v.Index); c != nil && v.DeliverAs == "" {
		b.Queue(`INSERT INTO postern.batch_callback (batch_id, address, payload) VALUES ($1, $2, $3)`, v.ID,
			c.ContractAddress, string(c.CallbackMessage))
	}
}

// verdict queues in b how the last execution of a batch ended.
func (h *heldProcessor) verdict(b *pgx.Batch, v *Batch, ok bool, text string) {
	b.Queue(`UPDATE postern.batch_action SET ended_at = $3, ok = $4, error = $5 WHERE batch_id = $1 AND run = $2`,
		v.ID, v.Runs, h.now, ok, text)
}
