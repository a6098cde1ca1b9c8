package batches

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/processor"
)

// NewBatch is what an owner puts into a line (S4.9).
type NewBatch struct {
	Actions    processor.Actions
	Messages   []processor.Message
	Priority   processor.Priority
	Expiration *time.Time // nil: what its actions say
	Label      string     // the authorization that it counts for, "" for none
	Once       db.Once

	Peer   string // the installation that sends it, which may what the owner may; "" for none
	Origin string // its transaction there
}

// owned refuses an actor that is not the owner of a processor. Without an owner, each actor that the API admits may
// act.
func (h *heldProcessor) owned(by db.By) error {
	if h.Owner != "" && h.Owner != by.Actor {
		return processor.NotOwner()
	}
	return nil
}

// Enqueue puts an owner's batch at the back of its line. Outcomes: the batch, Queued; the batch, Done, when it has
// expired already; Invalid for a batch that cannot be executed; Forbidden for others than the owner.
func (s *Store) Enqueue(ctx context.Context, by db.By, name string, n NewBatch) (*Batch, error) {
	return s.putBatch(ctx, by, name, n, processor.Enqueued, processor.Spot{})
}

// Insert puts an owner's batch at a spot of its line; else like Enqueue. Invalid "Index out of bounds".
func (s *Store) Insert(ctx context.Context, by db.By, name string, n NewBatch, spot processor.Spot) (*Batch, error) {
	return s.putBatch(ctx, by, name, n, processor.Inserted, spot)
}

func (s *Store) putBatch(ctx context.Context, by db.By, name string, n NewBatch, on processor.Event, spot processor.Spot) (v *Batch, err error) {
	if err := n.Actions.Validate(); err != nil {
		return nil, err
	}
	if at := n.Actions.Domain(); at != name {
		return nil, fault.At("/actions_config", "its domain is %q, and this is processor %q", fault.Clip(at), fault.Clip(name))
	}
	if err := processor.CheckMessages(n.Messages, n.Actions.Functions()); err != nil {
		return nil, err
	}
	if err := s.mayExecute(ctx, by.Context, n.Actions); err != nil {
		return nil, err
	}
	err = s.onProcessor(ctx, by.Context, name, func(t *db.Txn, h *heldProcessor) error {
		if err := h.mayPut(ctx, t, by, n.Peer); err != nil {
			return err
		}
		if v, err = requested(ctx, t, by.Context, n.Once); err != nil || v != nil {
			return err
		}
		if err := by.Seen(h.Version); err != nil {
			return err
		}
		if err := s.accepts(by.Context, n.Actions); err != nil {
			return err
		}
		v = &Batch{once: n.Once, origin: n.Origin, ByOwner: true, Initiator: by.Actor, Label: n.Label,
			Batch: processor.Batch{Priority: n.Priority, Actions: n.Actions, Messages: n.Messages, Expiration: n.Expiration}}
		if v.Expiration == nil {
			v.Expiration = n.Actions.Expires(h.now)
		}
		if n.Label != "" { // it counts, whatever the limit says (S4.13)
			a, err := h.authorization(ctx, t, by.Context, n.Label, by.Actor)
			if err != nil {
				return err
			}
			v.authorizationID = a.id
		}
		b := &pgx.Batch{}
		if err := h.begin(ctx, t, b, v, on, spot, by); err != nil {
			return err
		}
		h.saveLines(b)
		s.AuditIn(b, by, "post", "/processors/"+name+"/batches")
		return t.Commit(ctx, b)
	})
	if err != nil {
		return nil, err
	}
	return v, nil
}

// accepts refuses a batch where its context, or the type of one of its functions, is drained.
func (s *Store) accepts(contextID int32, a processor.Actions) error {
	var types []string
	for _, f := range a.Functions() {
		types = append(types, f.ContractAddress)
	}
	return s.Accepts(contextID, types...)
}

// requested returns the batch that a request made before, nil if it is new; another body is a conflict. Of two that
// come at once to two processors, the index refuses one, which is run again and finds the other's.
func requested(ctx context.Context, t *db.Txn, contextID int32, once db.Once) (v *Batch, err error) {
	first, err := t.Replayed(ctx, once, `SELECT batch_id::text, request_hash FROM postern.batch WHERE context_id = $1 AND request_key = $2`, contextID, once.Key)
	if err != nil || first == "" {
		return nil, err
	}
	b := &pgx.Batch{}
	b.Queue(batchSelect+` WHERE b.batch_id = $1::bigint`, first).Query(func(rows pgx.Rows) error {
		list, err := pgx.CollectRows(rows, scanBatch)
		if err == nil {
			v = list[0]
			v.Replay = true
		}
		return err
	})
	if err := t.Send(ctx, b); err != nil {
		return nil, err
	}
	return v, t.Rollback(ctx)
}

// begin gives a batch its id and queues in b how its life begins.
func (h *heldProcessor) begin(ctx context.Context, t *db.Txn, b *pgx.Batch, v *Batch, on processor.Event, spot processor.Spot, by db.By) (err error) {
	if v.ID, err = next(ctx, t, "postern.batch_id"); err != nil {
		return err
	}
	v.Processor, v.processorID, v.CreatedAt, v.DeliverAs = h.Name, h.ID, h.now, h.DeliverAs
	st, err := v.Decide(on, h.facts())
	if err != nil {
		return err
	}
	if st.State == processor.Done { // its position is not shown, but it must be one (S4.3)
		if err := h.lines[v.Priority].CanInsert(spot.Position); err != nil {
			return err
		}
	}
	if v.authorizationID != 0 {
		b.Queue(`UPDATE postern.batch_authorization SET running = running + 1 WHERE authorization_id = $1`, v.authorizationID)
	}
	if v.held {
		b.Queue(`INSERT INTO postern.batch_call AS c (authorization_id, actor, spent) VALUES ($1, $2, 1)
			ON CONFLICT (authorization_id, actor) DO UPDATE SET spent = c.spent + 1`, v.authorizationID, v.Initiator)
	}
	return h.store(ctx, t, b, v, change{step: st, spot: spot, actor: by.Actor, reason: by.Reason})
}

// Eviction names a batch: by its id, or by where it stands.
type Eviction struct {
	ID       int64 // 0: by position
	Priority processor.Priority
	Position int64
}

// Evict ends a batch that stands in a line or waits for a callback: RemovedByOwner. Outcomes besides: Invalid
// "Index out of bounds"; NotFound for an id; Conflict "wrong_state" for one that is being executed or has ended.
func (s *Store) Evict(ctx context.Context, by db.By, name string, e Eviction) (v *Batch, err error) {
	err = s.onProcessor(ctx, by.Context, name, func(t *db.Txn, h *heldProcessor) error {
		if err := h.owned(by); err != nil {
			return err
		}
		if err := by.Seen(h.Version); err != nil {
			return err
		}
		id := e.ID
		if id == 0 {
			if err := h.lines[e.Priority].CanRemove(e.Position); err != nil {
				return err
			}
			at, err := h.at(ctx, t, e.Priority, e.Position)
			if err != nil {
				return err
			}
			id = at.Batch
		}
		if v, err = h.one(ctx, t, id); err != nil {
			return err
		}
		st, err := v.Decide(processor.Evicted, h.facts())
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		if err := h.store(ctx, t, b, v, change{step: st, actor: by.Actor, reason: by.Reason}); err != nil {
			return err
		}
		h.saveLines(b)
		s.AuditIn(b, by, "evict", "/processors/"+name+"/batches")
		return t.Commit(ctx, b)
	})
	if err != nil {
		return nil, err
	}
	return v, nil
}
