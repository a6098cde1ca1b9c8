package batches

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/processor"
)

// pendingCallback is what a batch waits for.
type pendingCallback struct {
	address           string
	payload, received json.RawMessage
	deadline          time.Time // zero while the execution has not ended
}

// callback reads what a batch waits for, behind the lock of its processor; nil if it waits for nothing.
func (h *heldProcessor) callback(ctx context.Context, t *db.Txn, id int64) (c *pendingCallback, err error) {
	b := &pgx.Batch{}
	b.Queue(`SELECT c.address, c.payload, c.received, c.deadline FROM postern.batch_callback c JOIN postern.batch b USING (batch_id)
		WHERE c.batch_id = $1 AND b.processor_id = $2`, id, h.ID).Query(func(rows pgx.Rows) error {
		var v pendingCallback
		var deadline *time.Time
		_, err := pgx.ForEachRow(rows, []any{&v.address, &v.payload, &v.received, &deadline}, func() error {
			if deadline != nil {
				v.deadline = *deadline
			}
			c = &v
			return nil
		})
		return err
	})
	err = t.Send(ctx, b)
	return c, err
}

// Confirm gives a batch the callback that it waits for (S4.8). Outcomes: requeued or finished; waiting, if the
// execution is not known to have ended, and the callback is kept until then; NotFound "Pending callback not found";
// Forbidden "Invalid callback sender". A payload that differs counts as a failure of the action.
func (s *Store) Confirm(ctx context.Context, by db.By, name string, id int64, payload json.RawMessage) (out Ticked, err error) {
	err = s.onProcessor(ctx, by.Context, name, func(t *db.Txn, h *heldProcessor) error {
		c, err := h.callback(ctx, t, id)
		if err != nil {
			return err
		}
		if c == nil {
			return fault.New(fault.NotFound, "not_found", "Pending callback not found")
		}
		if c.address != by.Actor {
			return fault.New(fault.Forbidden, "forbidden", "Invalid callback sender")
		}
		v, err := h.one(ctx, t, id)
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		if v.State == processor.Executing {
			out = Ticked{TickWaiting, v}
			b.Queue(`UPDATE postern.batch_callback SET received = coalesce(received, $2) WHERE batch_id = $1`, id, string(payload))
			return t.Commit(ctx, b)
		}
		st, err := h.received(ctx, t, b, v, c, payload, by.Actor)
		if err != nil {
			return err
		}
		out = Ticked{outcomeOf(st), v}
		h.saveLines(b)
		return t.Commit(ctx, b)
	})
	return out, err
}

// received queues in b what a callback makes of the batch that waits for it.
func (h *heldProcessor) received(ctx context.Context, t *db.Txn, b *pgx.Batch, v *Batch, c *pendingCallback, payload json.RawMessage, actor string) (processor.Step, error) {
	facts, text := h.facts(), ""
	if facts.Wrong = !processor.Same(payload, c.payload); facts.Wrong {
		text = "Invalid callback message received"
	}
	st, err := v.Decide(processor.CallbackReceived, facts)
	if err != nil {
		return st, err
	}
	h.verdict(b, v, !facts.Wrong, text)
	return st, h.store(ctx, t, b, v, change{step: st, actor: actor, reason: text})
}

// early looks for a callback that came before the execution was known to have ended.
func (h *heldProcessor) early(ctx context.Context, t *db.Txn, b *pgx.Batch, v *Batch) error {
	c, err := h.callback(ctx, t, v.ID)
	if err != nil || c == nil || c.received == nil {
		return err
	}
	_, err = h.received(ctx, t, b, v, c, c.received, c.address)
	return err
}
