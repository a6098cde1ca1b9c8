package batches

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/deliveries"
	"github.com/postern-dev/postern/internal/processor"
)

// Batch is one with who sent it and when (S4.12): the record of its execution, whose id is the batch's.
type Batch struct {
	processor.Batch
	Processor string
	Label     string // of the authorization that it counts for, "" for none
	Initiator string
	ByOwner   bool
	Runs      int // executions that have begun
	UpdatedAt time.Time
	Replay    bool // the same request had made it before

	once            db.Once
	origin          string // the transaction of another installation that brought it
	processorID     int32
	authorizationID int32
	held            bool // a call of the initiator is held for it
	steps           int
	place           *int64 // where it stands, if it does and that has been read
}

const batchColumns = `b.batch_id, p.name, b.processor_id, coalesce(b.authorization_id, 0), b.label, b.initiator, b.by_owner, b.call_held, b.priority,
		b.actions, b.messages, b.expiration_time, b.ttl, b.delivered, b.deliver_as, b.state, b.position, b.retries, b.cooldown_until, b.cooldown_height, b.left_alone, b.run, b.steps,
		coalesce(b.result, ''), b.result_n, b.result_reason, b.result_retriable, b.created_at, b.updated_at`

const batchSelect = `SELECT ` + batchColumns + ` FROM postern.batch b JOIN postern.processor p ON p.processor_id = b.processor_id`

func scanBatch(row pgx.CollectableRow) (*Batch, error) {
	v := &Batch{}
	return v, v.scan(row)
}

// scan reads batchColumns, and what stands before them into first.
func (v *Batch) scan(row pgx.CollectableRow, first ...any) error {
	var r processor.Result
	err := row.Scan(append(first, &v.ID, &v.Processor, &v.processorID, &v.authorizationID, &v.Label, &v.Initiator, &v.ByOwner, &v.held, &v.Priority,
		&v.Actions, &v.Messages, &v.Expiration, &v.TTL, &v.Delivered, &v.DeliverAs, &v.State, &v.Index, &v.Retries, &v.CooldownUntil, &v.CooldownHeight, &v.LeftAlone, &v.Runs, &v.steps,
		&r.Kind, &r.N, &r.Reason, &r.Retriable, &v.CreatedAt, &v.UpdatedAt)...)
	if r.Kind != "" {
		v.Result = &r
	}
	return err
}

func (s *Store) batches(ctx context.Context, sql string, args ...any) ([]*Batch, error) {
	rows, err := s.Db(ctx).Query(ctx, batchSelect+sql, args...)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanBatch)
	return list, db.Known(err)
}

// Batch returns one batch of a processor, or NotFound.
func (s *Store) Batch(ctx context.Context, contextID int32, name string, id int64) (*Batch, error) {
	list, err := s.batches(ctx, ` WHERE b.batch_id = $1 AND p.context_id = $2 AND p.name = $3`, id, contextID, name)
	if err == nil && len(list) == 0 {
		err = noBatch(id, name)
	}
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

func noBatch(id int64, name string) error {
	return fault.New(fault.NotFound, "not_found", "processor %q has no batch %d", fault.Clip(name), id)
}

// BatchFilter narrows a list of batches. Empty fields do not narrow.
type BatchFilter struct {
	Result  processor.ResultKind // InProcess: those that have not ended
	Waiting bool                 // for a callback
	After   int64                // the id of the last one
	Limit   int
}

// Batches lists batches of a processor by their ids.
func (s *Store) Batches(ctx context.Context, contextID int32, name string, f BatchFilter) ([]*Batch, error) {
	p, err := s.Processor(ctx, contextID, name)
	if err != nil {
		return nil, err
	}
	return s.batches(ctx, ` WHERE b.processor_id = $1 AND b.batch_id > $2
		AND ($3 = '' OR $3 = 'in_process' AND b.result IS NULL OR b.result = $3) AND (NOT $4 OR b.state = 'Waiting_Callback')
		ORDER BY b.batch_id LIMIT $5`, p.ID, f.After, string(f.Result), f.Waiting, f.Limit)
}

// BatchesInLine returns the batches of a part of a line in their order, and how long the line is.
func (s *Store) BatchesInLine(ctx context.Context, contextID int32, name string, prio processor.Priority, r processor.Range) ([]*Batch, int64, error) {
	ids, length, err := s.Standing(ctx, contextID, name, prio, r)
	if err != nil || len(ids) == 0 {
		return nil, length, err
	}
	list, err := s.batches(ctx, ` JOIN unnest($1::bigint[]) WITH ORDINALITY n(id, nth) ON n.id = b.batch_id ORDER BY n.nth`, ids)
	return list, length, err
}

// load reads batches behind the lock of their processor.
func (h *heldProcessor) load(ctx context.Context, t *db.Txn, where string, args ...any) (list []*Batch, err error) {
	b := &pgx.Batch{}
	b.Queue(batchSelect+` WHERE b.processor_id = $1 AND `+where, append([]any{h.ID}, args...)...).Query(func(rows pgx.Rows) (err error) {
		list, err = pgx.CollectRows(rows, scanBatch)
		return err
	})
	err = t.Send(ctx, b)
	return list, err
}

// one reads the batch of an id behind the lock of its processor, or refuses.
func (h *heldProcessor) one(ctx context.Context, t *db.Txn, id int64) (*Batch, error) {
	list, err := h.load(ctx, t, `b.batch_id = $2`, id)
	if err == nil && len(list) == 0 {
		err = noBatch(id, h.Name)
	}
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

func (h *heldProcessor) facts() processor.Facts { return processor.Facts{Now: h.now, Height: h.Height} }

// change is a decision about a batch that is to be stored.
type change struct {
	step   processor.Step
	spot   processor.Spot // where Move is AtSpot
	actor  string
	reason string
}

// store queues in b what a decision makes of a batch: its row, its place, its history, and with its end what was held
// for it. The processor is locked, and a batch is written under that lock only. If it were not, the number of
// the step would be taken, and nothing of this is committed.
func (h *heldProcessor) store(ctx context.Context, t *db.Txn, b *pgx.Batch, v *Batch, c change) error {
	st := c.step
	if st.From == processor.Queued {
		if v.place == nil {
			prio, place, found, err := h.whereIs(ctx, t, v.ID)
			if err != nil {
				return err
			}
			if !found || prio != v.Priority {
				return fault.New(fault.Internal, "internal", "batch %d is Queued, and stands in no line", v.ID)
			}
			v.place = &place
		}
		h.take(b, v.Priority, *v.place)
		v.place = nil
	}
	if st.Move != processor.Away {
		spot := c.spot
		if st.Move == processor.Back {
			spot = processor.Spot{Position: h.lines[v.Priority].Length}
		}
		place, err := h.put(ctx, t, b, v.Priority, spot, v.ID)
		if err != nil {
			return err
		}
		v.place = &place
	}
	if st.From == processor.Queued && st.State == processor.Queued { // of a rotation nothing is kept but the place
		return nil
	}
	v.steps++
	pending := (st.From == processor.Executing || st.From == processor.WaitingCallback) && v.Actions.Confirmation(v.Index) != nil
	since := v.UpdatedAt
	v.Batch, v.UpdatedAt = st.Batch, h.now
	if st.From == "" {
		h.insertBatch(b, v)
	} else {
		h.left = append(h.left, stay{st.From, h.now.Sub(since)})
		h.updateBatch(b, v, st.From)
	}
	notice, err := h.notify(ctx, t, b, v)
	if err != nil {
		return err
	}
	b.Queue(`INSERT INTO postern.batch_step (batch_id, step, at, event, from_state, to_state, actor, reason, notice) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
		v.ID, v.steps, h.now, string(st.On), string(st.From), string(st.State), c.actor, c.reason, notice)
	if pending && st.State != processor.WaitingCallback { // a callback that comes late finds no batch (S4.5)
		b.Queue(`DELETE FROM postern.batch_callback WHERE batch_id = $1`, v.ID)
	}
	if st.State == processor.Done {
		h.end(b, v)
	}
	return nil
}

func (h *heldProcessor) insertBatch(b *pgx.Batch, v *Batch) {
	actions, _ := json.Marshal(v.Actions)
	messages, _ := json.Marshal(v.Messages)
	r := v.result()
	b.Queue(`INSERT INTO postern.batch (batch_id, context_id, processor_id, authorization_id, label, initiator, by_owner, call_held, priority, actions, messages,
			expiration_time, state, steps, result, result_n, result_reason, created_at, updated_at, request_key, request_hash, ttl, deliver_as, origin)
		SELECT $1, p.context_id, p.processor_id, nullif($3, 0), $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, nullif($14, ''), $15, $16, $17, $17, $18, $19, $20, $21, $22
		FROM postern.processor p WHERE p.processor_id = $2`,
		v.ID, h.ID, v.authorizationID, v.Label, v.Initiator, v.ByOwner, v.held, v.Priority, string(actions), string(messages),
		v.Expiration, string(v.State), v.steps, string(r.Kind), r.N, r.Reason, h.now, db.Nullable(v.once.Key), v.once.Hash, v.TTL, v.DeliverAs, db.Nullable(v.origin))
}

func (h *heldProcessor) updateBatch(b *pgx.Batch, v *Batch, from processor.State) {
	r := v.result()
	b.Queue(`UPDATE postern.batch SET was = $2, state = $3, position = $4, retries = $5, cooldown_until = $6, cooldown_height = $7, run = $8, steps = $9,
			result = nullif($10, ''), result_n = $11, result_reason = $12, result_retriable = $13, updated_at = $14, delivered = $15, left_alone = $16
		WHERE batch_id = $1 AND state = $2`,
		v.ID, string(from), string(v.State), v.Index, v.Retries, v.CooldownUntil, v.CooldownHeight, v.Runs, v.steps,
		string(r.Kind), r.N, r.Reason, r.Retriable, h.now, v.Delivered, v.LeftAlone)
}

func (v *Batch) result() processor.Result {
	if v.Result == nil {
		return processor.Result{}
	}
	return *v.Result
}

// notify queues in b that subscribers will be told of the end of a batch, once: the rows here commit with the end or
// not at all, and no event leaves Done (S4.7). Of a timeout that is no end they are told each time, under a number of
// its own, which it returns.
func (h *heldProcessor) notify(ctx context.Context, t *db.Txn, b *pgx.Batch, v *Batch) (notice *int64, err error) {
	event, number := outbox.EventResult, v.ID
	switch v.State {
	case processor.TimedOut:
		event = outbox.EventTimeout
		if number, err = next(ctx, t, "postern.batch_notice"); err != nil {
			return nil, err
		}
		notice = &number
	case processor.Done:
	default:
		return nil, nil
	}
	l, err := h.s.Deliveries.Subscribers.Of(ctx, t.Send, h.now)
	if err != nil {
		return nil, err
	}
	c := db.Columns{}
	if l.Tell(&c, h.now, h.contextID, outbox.OfProcessor(h.ID, number, outbox.DayOf(h.now)), event); c.N > 0 {
		h.told = true
		deliveries.FanoutInsert.Queue(b, c)
	}
	return notice, nil
}

// next draws a number.
func next(ctx context.Context, t *db.Txn, sequence string) (n int64, err error) {
	b := &pgx.Batch{}
	b.Queue(`SELECT nextval($1::text::regclass)`, sequence).QueryRow(func(row pgx.Row) error { return row.Scan(&n) })
	err = t.Send(ctx, b)
	return n, err
}

// end queues in b what comes with the end of a batch: its authorization has room for another one, and the call that was
// held is given back unless the result burns it (S4.13).
func (h *heldProcessor) end(b *pgx.Batch, v *Batch) {
	if v.authorizationID == 0 {
		return
	}
	b.Queue(`UPDATE postern.batch_authorization SET running = running - 1 WHERE authorization_id = $1`, v.authorizationID)
	if v.held && !v.Result.Burns() {
		b.Queue(`UPDATE postern.batch_call SET spent = spent - 1 WHERE authorization_id = $1 AND actor = $2`, v.authorizationID, v.Initiator)
	}
}

// BatchStep is one thing that happened to a batch.
type BatchStep struct {
	At            time.Time
	Event         processor.Event
	From, To      processor.State
	Actor, Reason string
}

// BatchHistory tells what happened to a batch, but for its rotations, in the order in which it did.
func (s *Store) BatchHistory(ctx context.Context, contextID int32, name string, id int64) ([]BatchStep, error) {
	if _, err := s.Batch(ctx, contextID, name, id); err != nil {
		return nil, err
	}
	rows, err := s.Db(ctx).Query(ctx, `SELECT at, event, from_state, to_state, actor, reason FROM postern.batch_step WHERE batch_id = $1 ORDER BY step`, id)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[BatchStep])
	return list, db.Known(err)
}
