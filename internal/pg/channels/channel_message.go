package channels

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/machine"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// ChannelMessageRow is a row of channel_message, locked.
type ChannelMessageRow struct {
	ID        string
	payload   json.RawMessage
	State     string
	retries   int
	fence     int64
	draw      int64
	node      *int64
	epoch     *int32
	err       string
	createdAt time.Time
}

// ChannelMessageSelect are the columns of channel_message, of the alias m, as CollectChannelMessages reads them.
const ChannelMessageSelect = `m.message_id, m.payload, m.state, m.retries, m.fence, m.draw, m.node_id, m.node_epoch, m.error, m.created_at`

// CollectChannelMessages reads rows of ChannelMessageSelect.
func CollectChannelMessages(into *[]*ChannelMessageRow) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		*into = nil
		for rows.Next() {
			m := &ChannelMessageRow{}
			if err := rows.Scan(&m.ID, &m.payload, &m.State, &m.retries, &m.fence, &m.draw, &m.node, &m.epoch, &m.err, &m.createdAt); err != nil {
				return err
			}
			*into = append(*into, m)
		}
		return rows.Err()
	}
}

// channelRow is the locked row of a channel, and how many messages are offered in it.
type channelRow struct {
	capacity, maxRetries, offered int
	now                           time.Time
}

// lockChannel adds to b what locks a channel and counts what it offers, in a statement of its own, so that it
// sees what the last holder of the lock committed. Served by channel_message_by_state.
func (s *Store) lockChannel(b *pgx.Batch, id int32) *channelRow {
	c := &channelRow{}
	b.Queue(`SELECT capacity, max_retries FROM postern.channel WHERE channel_id = $1 FOR UPDATE`, id).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&c.capacity, &c.maxRetries}, func() error { return nil })
		return err
	})
	b.Queue(`SELECT count(*) FROM postern.channel_message WHERE channel_id = $1 AND state = 'Offered'`, id).QueryRow(func(row pgx.Row) error { return row.Scan(&c.offered) })
	s.ReadNow(b, &c.now)
	return c
}

func (c *channelRow) facts(m *ChannelMessageRow) leader.ChannelMessageFacts {
	return leader.ChannelMessageFacts{Retries: m.retries, MaxRetries: c.maxRetries, Room: c.offered < c.capacity}
}

// ChannelMessageChange is what one transaction writes about messages.
type ChannelMessageChange struct {
	S       *Store
	Channel int32
	Now     time.Time
	fresh   db.Columns
	changed db.Columns
	ended   db.Columns
	gone    db.Columns
}

// apply puts a step into the row and what is to be written of it. reason is that of an end.
func (w *ChannelMessageChange) apply(m *ChannelMessageRow, step leader.ChannelMessageStep, reason string) {
	was := m.State
	m.State = step.To
	if step.RaiseFence {
		m.fence = w.S.Fence(m.fence, w.Now)
	}
	if step.CountRetry {
		m.retries++
	}
	if step.DrawAnew {
		m.draw = rand.Int64()
	}
	if m.State != leader.ChannelMessageActive {
		m.node, m.epoch = nil, nil
	}
	switch {
	case step.Store:
		w.fresh.Add(w.Channel, m.ID, string(m.payload), m.State, m.fence, m.draw, w.Now, w.Now)
	case step.Record:
		var payload any
		if m.State == leader.ChannelMessageDropped {
			payload = string(m.payload)
		}
		w.gone.Add(w.Channel, m.ID)
		w.ended.Add(w.Channel, m.ID, m.fence, m.State, m.retries, reason, payload, m.createdAt, w.Now)
	case m.State != was || step.RaiseFence:
		w.changed.Add(w.Channel, m.ID, m.State, m.retries, m.fence, m.draw, db.Optional(m.node), db.Optional(m.epoch), m.err)
	}
}

var (
	channelMessageInsert = db.InsertMany("channel_message", "", "channel_id int", "message_id text", "payload jsonb", "state text", "fence bigint", "draw bigint",
		"created_at timestamptz", "updated_at timestamptz")
	channelMessageEndInsert = db.InsertMany("channel_message_end", "", "channel_id int", "message_id text", "fence bigint", "state text", "retries int", "reason text",
		"payload jsonb", "created_at timestamptz", "ended_at timestamptz")
)

// Queue adds the writes to b. Their rows are locked, or new under the channel's lock.
func (w *ChannelMessageChange) Queue(b *pgx.Batch) {
	if len(w.fresh.Cols) > 0 {
		channelMessageInsert.Queue(b, w.fresh)
	}
	if len(w.changed.Cols) > 0 {
		b.Queue(channelMessageUpdate, w.changed.Args(w.Now)...)
	}
	if len(w.gone.Cols) > 0 {
		b.Queue(channelMessageDelete, w.gone.Args()...)
		channelMessageEndInsert.Queue(b, w.ended)
	}
}

// Both find messages by their keys: a channel that is a parameter would have all its messages read.
const (
	channelMessageUpdate = `UPDATE postern.channel_message m SET state = n.state, retries = n.retries, fence = n.fence, draw = n.draw, node_id = n.node_id,
			node_epoch = n.node_epoch, error = n.error, updated_at = $10
		FROM ROWS FROM (unnest($1::int[]), unnest($2::text[]), unnest($3::text[]), unnest($4::int[]), unnest($5::bigint[]), unnest($6::bigint[]),
			unnest($7::bigint[]), unnest($8::int[]), unnest($9::text[])) n(channel_id, message_id, state, retries, fence, draw, node_id, node_epoch, error)
		WHERE (m.channel_id, m.message_id) = (n.channel_id, n.message_id)`
	channelMessageDelete = `DELETE FROM postern.channel_message m USING ROWS FROM (unnest($1::int[]), unnest($2::text[])) n(channel_id, message_id)
		WHERE (m.channel_id, m.message_id) = (n.channel_id, n.message_id)`
)

// Sent says what became of a message that was sent.
type Sent string

const (
	SentOffered Sent = "offered" // the next receiver gets it
	SentQueued  Sent = "queued"  // the channel is full: stored, and offered later
	SentExists  Sent = "exists"  // it is there already: nothing was done
)

// Send stores messages and offers those for which there is room, one answer for each. A message that exists,
// in whatever state, is not touched (S1.15). NotFound: the channel was removed.
func (c *Conduit[P]) Send(ctx context.Context, list ...Outgoing[P]) (out []Sent, err error) {
	err = c.s.Run(ctx, func(t *db.Txn) error {
		b := &pgx.Batch{}
		if out, err = c.SendIn(ctx, t, b, list); err != nil {
			return err
		}
		return t.Commit(ctx, b)
	})
	return out, err
}

// SendIn sends as a part of t, whose last batch is b.
func (c *Conduit[P]) SendIn(ctx context.Context, t *db.Txn, b *pgx.Batch, list []Outgoing[P]) ([]Sent, error) {
	ids := make([]string, len(list))
	payloads := make([]json.RawMessage, len(list))
	for i, m := range list {
		var err error
		if payloads[i], err = json.Marshal(m.Payload); err != nil || m.ID == "" || len(m.ID) > 255 {
			return nil, fault.At("/id", "message %q cannot be sent: want an id of 1 to 255 bytes and a payload that is JSON", fault.Clip(m.ID)).Because(err)
		}
		ids[i] = m.ID
	}
	there, fences := map[string]*ChannelMessageRow{}, map[string]int64{}
	load := &pgx.Batch{}
	row := c.s.lockChannel(load, c.id)
	load.Queue(`SELECT m.message_id, m.state FROM postern.channel_message m WHERE m.channel_id = $1 AND m.message_id = ANY ($2)`, c.id, ids).Query(func(rows pgx.Rows) error {
		var m ChannelMessageRow
		_, err := pgx.ForEachRow(rows, []any{&m.ID, &m.State}, func() error { one := m; there[m.ID] = &one; return nil })
		return err
	})
	load.Queue(`SELECT e.message_id, max(e.fence) FROM postern.channel_message_end e WHERE e.channel_id = $1 AND e.message_id = ANY ($2) GROUP BY e.message_id`, c.id, ids).
		Query(func(rows pgx.Rows) error {
			var id string
			var fence int64
			_, err := pgx.ForEachRow(rows, []any{&id, &fence}, func() error { fences[id] = fence; return nil })
			return err
		})
	if err := t.Send(ctx, load); err != nil {
		return nil, err
	}
	if row.capacity == 0 {
		return nil, fault.New(fault.NotFound, "not_found", "the channel was removed")
	}
	w := &ChannelMessageChange{S: c.s, Channel: c.id, Now: row.now}
	out := make([]Sent, len(list))
	for i, id := range ids {
		m, exists := there[id]
		if !exists {
			m = &ChannelMessageRow{ID: id, payload: payloads[i], State: machine.Start, fence: fences[id], draw: rand.Int64(), createdAt: row.now}
		}
		step, err := leader.NextChannelMessage(m.State, leader.ChannelMessageSent, row.facts(m))
		if err != nil {
			return nil, err
		}
		w.apply(m, step, "")
		switch {
		case exists:
			out[i] = SentExists
			continue
		case m.State == leader.ChannelMessageOffered:
			out[i] = SentOffered
			row.offered++
		default:
			out[i] = SentQueued
		}
		there[id] = m
	}
	w.Queue(b)
	return out, nil
}

// Receive takes up to max messages, the oldest offers first, and makes them active before anybody processes them. by is
// the node that will: when it dies, the next Sweep takes them back at once; a zero Node is a client, whose messages are
// taken back when they are stale. It never waits for another receiver: it skips messages that another one is taking. A
// payload that is no P counts as one that its receiver could not process.
func (c *Conduit[P]) Receive(ctx context.Context, by pg.Node, max int) (list []Held[P], err error) {
	err = c.s.Run(ctx, func(t *db.Txn) error {
		list = nil
		var rows []*ChannelMessageRow
		w := &ChannelMessageChange{S: c.s, Channel: c.id}
		b := &pgx.Batch{}
		b.Queue(`SELECT `+ChannelMessageSelect+` FROM postern.channel_message m WHERE m.channel_id = $1 AND m.state = 'Offered'
			ORDER BY m.updated_at, m.message_id LIMIT $2 FOR UPDATE SKIP LOCKED`, c.id, max).Query(CollectChannelMessages(&rows))
		c.s.ReadNow(b, &w.Now)
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if len(rows) == 0 {
			return t.Rollback(ctx)
		}
		if list, err = Hold[P](w, rows, by); err != nil {
			return err
		}
		b = &pgx.Batch{}
		w.Queue(b)
		return t.Commit(ctx, b)
	})
	return list, err
}

// Hold makes messages active that are locked and offered.
func Hold[P any](w *ChannelMessageChange, rows []*ChannelMessageRow, by pg.Node) (list []Held[P], err error) {
	for _, m := range rows {
		step, err := leader.NextChannelMessage(m.State, leader.ChannelMessageReceived, leader.ChannelMessageFacts{})
		if err != nil {
			return nil, err
		}
		h, bad := heldOf[P](m)
		h.Fence = w.S.Fence(m.fence, w.Now) // as apply raises it
		if bad == nil {
			if list = append(list, h); by.ID != 0 {
				m.node, m.epoch = &by.ID, &by.Epoch
			}
		} else {
			m.State, m.err, m.fence = step.To, bad.Error(), h.Fence
			if step, err = leader.NextChannelMessage(m.State, leader.ChannelMessageErr, leader.ChannelMessageFacts{}); err != nil {
				return nil, err
			}
		}
		w.apply(m, step, "")
	}
	return list, nil
}

// Ack ends a message: it was processed. It may be repeated, which changes nothing. Conflict "stale_fence": it is no
// longer held under that fence: another receiver holds it, or will take it.
func (c *Conduit[P]) Ack(ctx context.Context, id string, fence int64) (changed bool, err error) {
	return c.judge(ctx, id, fence, leader.ChannelMessageOk, "")
}

// Nack gives a message back: it could not be processed, for that reason. Another receiver gets it, or it is
// dropped if that was the last try. Conflict as with Ack.
func (c *Conduit[P]) Nack(ctx context.Context, id string, fence int64, reason string) error {
	_, err := c.judge(ctx, id, fence, leader.ChannelMessageErr, reason)
	return err
}

// judge ends or gives back a message. It compares the fence behind the lock of the message's row, so that between
// this and its commit no other process can take the message back.
func (c *Conduit[P]) judge(
	ctx context.Context, id string, fence int64, event, reason string,
) (changed bool, err error) {
	err = c.s.Run(ctx, func(t *db.Txn) error {
		var rows []*ChannelMessageRow
		acked := false
		changed = false // of a run that is repeated
		w := &ChannelMessageChange{S: c.s, Channel: c.id}
		b := &pgx.Batch{}
		b.Queue(`SELECT `+ChannelMessageSelect+` FROM postern.channel_message m WHERE (m.channel_id, m.message_id) = ($1, $2) FOR UPDATE`, c.id, id).Query(CollectChannelMessages(&rows))
		b.Queue(`SELECT EXISTS (SELECT FROM postern.channel_message_end e WHERE (e.channel_id, e.message_id, e.fence) = ($1, $2, $3) AND e.state = 'Acked')`,
			c.id, id, fence).QueryRow(func(row pgx.Row) error { return row.Scan(&acked) })
		c.s.ReadNow(b, &w.Now)
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if acked && event == leader.ChannelMessageOk {
			return t.Rollback(ctx)
		}
		if len(rows) == 0 || rows[0].fence != fence || rows[0].State != leader.ChannelMessageActive {
			return fault.New(fault.Conflict, "stale_fence", "message %q is not held under fence %d: it was taken back, or has ended", fault.Clip(id), fence)
		}
		m := rows[0]
		step, err := leader.NextChannelMessage(m.State, event, leader.ChannelMessageFacts{})
		if err != nil {
			return err
		}
		if event == leader.ChannelMessageErr {
			m.err = reason
		}
		b = &pgx.Batch{}
		w.apply(m, step, reason)
		w.Queue(b)
		changed = true
		return t.Commit(ctx, b)
	})
	return changed && err == nil, err
}

// AckIn acknowledges messages as a part of t, whose last batch is b.
func (c *Conduit[P]) AckIn(ctx context.Context, t *db.Txn, b *pgx.Batch, held []Held[P]) error {
	return c.MoveIn(ctx, t, b, held, leader.ChannelMessageOk)
}

// MoveIn lets something happen to messages that are held. A message that is not held any more under its fence is
// passed over: another receiver has it.
func (c *Conduit[P]) MoveIn(ctx context.Context, t *db.Txn, b *pgx.Batch, held []Held[P], event string) error {
	if len(held) == 0 {
		return nil
	}
	fences, ids := map[string]int64{}, make([]string, len(held))
	for i, h := range held {
		ids[i], fences[h.ID] = h.ID, h.Fence
	}
	var rows []*ChannelMessageRow
	w := &ChannelMessageChange{S: c.s, Channel: c.id}
	load := &pgx.Batch{}
	load.Queue(`SELECT `+ChannelMessageSelect+` FROM postern.channel_message m WHERE m.channel_id = $1 AND m.message_id = ANY ($2) ORDER BY m.message_id FOR UPDATE`, c.id, ids).
		Query(CollectChannelMessages(&rows))
	c.s.ReadNow(load, &w.Now)
	if err := t.Send(ctx, load); err != nil {
		return err
	}
	for _, m := range rows {
		if m.State != leader.ChannelMessageActive || m.fence != fences[m.ID] {
			continue
		}
		step, err := leader.NextChannelMessage(m.State, event, leader.ChannelMessageFacts{})
		if err != nil {
			return err
		}
		w.apply(m, step, "")
	}
	w.Queue(b)
	return nil
}
