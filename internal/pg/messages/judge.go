package messages

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Reply is what a receiver answers a message with.
type Reply struct {
	Format string `json:"format"`
	Body   string `json:"message"`
}

// Ack acknowledges a message that is held under a fence: it is handed to no other receiver. The same again changes
// nothing. Outcomes of this and of those below besides: NotFound; Conflict "stale_fence", "wrong_state", where what its
// receivers say is kept as late; Conflict "stale_fence" for another actor than its receiver: nothing is kept then.
func (s *Store) Ack(ctx context.Context, by db.By, id uuid.UUID, fence int64) (changed bool, err error) {
	return s.judge(ctx, by, id, fence, message.OnAcknowledged, "", nil)
}

// Processed ends a message that is held under a fence: its receiver has done what it asks for.
func (s *Store) Processed(ctx context.Context, by db.By, id uuid.UUID, fence int64) (changed bool, err error) {
	return s.judge(ctx, by, id, fence, message.OnProcessed, "", nil)
}

// Reject ends a message that is held under a fence in error: its receiver will not have it.
func (s *Store) Reject(ctx context.Context, by db.By, id uuid.UUID, fence int64) (changed bool, err error) {
	return s.judge(ctx, by, id, fence, message.OnRefused, by.Reason, nil)
}

// Answered ends a message that is held under a fence with its result.
func (s *Store) Answered(ctx context.Context, by db.By, id uuid.UUID, fence int64, r Reply) (changed bool, err error) {
	return s.judge(ctx, by, id, fence, message.OnResult, "", &r)
}

// said is what is kept of a word that came too late.
type said struct {
	Reason string `json:"reason,omitempty"`
	*Reply
}

// judge lets a receiver say something of a message that it holds. Status and fence are compared behind the lock of its
// row: a receiver that is handed it meanwhile has raised the fence, or waits and finds it acknowledged; a deadline
// comes before, and is found, or finds it changed.
func (s *Store) judge(ctx context.Context, by db.By, id uuid.UUID, fence int64, on message.Event, reason string,
	r *Reply) (changed bool, err error) {
	var late error
	err = s.Run(ctx, func(t *db.Txn) error {
		changed, late = false, nil
		m, now, err := s.lock(ctx, t, id)
		if err != nil {
			return err
		}
		if m == nil || m.Target != by.Context || m.DeliveredAt == nil {
			return none(id.String())
		}
		b := &pgx.Batch{}
		if err := s.overdue(b, m, now); err != nil {
			return err
		}
		late = notTheirs(by, m, fence)
		same, err := s.saidBefore(ctx, t, m, fence, on, r)
		switch {
		case err != nil:
			return err
		case (same || late != nil) && b.Len() == 0:
			return t.Rollback(ctx)
		case same || late != nil:
			return s.commit(ctx, t, b, m)
		case m.Status.Ended() || m.Fence != fence || m.Type == message.Job:
			late = stale(m, fence)
			return s.keepLate(ctx, t, b, m, on, fence, by.Actor, said{reason, r}, now)
		}
		if err := s.say(b, by, m, now, on, reason, r); err != nil {
			return err
		}
		changed = true
		return s.commit(ctx, t, b, m)
	})
	if err == nil {
		s.heardOf()
		err = late
	}
	return changed && err == nil, err
}

// keepLate keeps what a receiver says too late, and commits. Of an actor that was never handed the message, and of a
// fence that it never had, nothing is kept: such words would be without bound.
func (s *Store) keepLate(ctx context.Context, t *db.Txn, b *pgx.Batch, m *Message, on message.Event, fence int64,
	actor string, what said, now time.Time) error {
	handed := false
	read := &pgx.Batch{}
	read.Queue(`SELECT EXISTS (SELECT
			FROM postern.message_step s
			WHERE s.message_id = $1 AND s.event = $2 AND s.by = $3)`, m.ID, string(message.OnReceived), actor).
		QueryRow(func(row pgx.Row) error { return row.Scan(&handed) })
	if err := t.Send(ctx, read); err != nil {
		return err
	}
	if handed && fence > 0 && fence <= m.Fence {
		s.Late(b, m, on, fence, actor, what, now)
	}
	return s.commit(ctx, t, b, m)
}

// notTheirs refuses what an actor says of a message that another one was handed under this fence, or that none was: a
// fence is no secret, since the ETag and the history of the message show it.
func notTheirs(by db.By, m *Message, fence int64) error {
	switch {
	case m.Fence != fence || m.Type == message.Job || m.Receiver == by.Actor:
		return nil
	case m.Receiver == "":
		return fault.New(fault.Conflict, "stale_fence", "message %s was handed to no receiver yet: receive it first",
			m.ID)
	}
	return fault.New(fault.Conflict, "stale_fence", "message %s was handed to %q under fence %d, and not to %q", m.ID,
		fault.Clip(m.Receiver), fence, fault.Clip(by.Actor))
}

// say adds to b what a receiver says of a message that it holds. Who says more than an acknowledgement acknowledges.
func (s *Store) say(b *pgx.Batch, by db.By, m *Message, now time.Time, on message.Event, reason string,
	r *Reply) error {
	c := Change{On: on, By: by.Actor, Now: now}
	if on == message.OnRefused {
		c.Code, c.Text = message.CodeRejected, reason
		if reason == "" {
			c.Text = "its receiver would not have it"
		}
		return s.Move(b, m, c)
	}
	if m.Status == message.Dispatched {
		ack := c
		ack.On = message.OnAcknowledged
		if err := s.Move(b, m, ack); err != nil || on == message.OnAcknowledged {
			return err
		}
	}
	if r == nil {
		return s.Move(b, m, c)
	}
	return s.answer(b, m, &Message{Actor: by.Actor, Format: r.Format, Body: r.Body}, c)
}

// saidBefore says whether a word is one that was heard under the same fence: its answer was lost.
func (s *Store) saidBefore(ctx context.Context, t *db.Txn, m *Message, fence int64, on message.Event, r *Reply) (bool,
	error) {
	if m.Fence != fence {
		return false, nil
	}
	switch {
	case on == message.OnAcknowledged:
		return m.Status == message.Acknowledged || m.Status == message.Processed, nil
	case on == message.OnRefused:
		return m.Status == message.Error && m.Code == message.CodeRejected, nil
	case m.Status != message.Processed:
		return false, nil
	}
	var format, body *string
	b := &pgx.Batch{}
	b.Queue(`SELECT max(format), max(body) FROM postern.message WHERE reply_to = $1 AND type = 'result'`, m.ID).
		QueryRow(func(row pgx.Row) error { return row.Scan(&format, &body) })
	if err := t.Send(ctx, b); err != nil {
		return false, err
	}
	if r == nil {
		return body == nil, nil
	}
	return body != nil && *body == r.Body && *format == r.Format, nil
}

func stale(m *Message, fence int64) error {
	switch {
	case m.Status == message.Error:
		return fault.New(fault.Conflict, "wrong_state", "message %s has ended in error (%s): what is said of it now "+
			"is kept as late, and changes nothing", m.ID, m.Code)
	case m.Type == message.Job:
		return fault.New(fault.Conflict, "wrong_state", "message %s is answered by the ends of its jobs", m.ID)
	case m.Status == message.Processed:
		return fault.New(fault.Conflict, "wrong_state", "message %s was processed: what is said of it now is kept as "+
			"late, and changes nothing", m.ID)
	}
	return fault.New(fault.Conflict, "stale_fence", "message %s is not held under fence %d: another receiver has it, "+
		"or had it since", m.ID, fence)
}

// Cancel ends a message of msg_out that has not ended: its sender takes it back. Jobs that were made of it go on. One
// that a peer has brought is ended where it is: the peer hears that it was rejected, or has forgotten it itself.
func (s *Store) Cancel(ctx context.Context, by db.By, id uuid.UUID) (r pg.LeverResult, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		r = pg.LeverResult{}
		m, now, err := s.lock(ctx, t, id)
		if err != nil {
			return err
		}
		brought := m != nil && m.Context == 0 && m.Target == by.Context
		if m == nil || m.Context != by.Context && !brought {
			return none(id.String())
		}
		if err := by.Seen(m.Tag()); err != nil {
			return err
		}
		r.State = string(m.Status)
		if m.Status == message.Processed {
			return fault.New(fault.Conflict, "wrong_state", "message %s was processed already", id)
		}
		b := &pgx.Batch{}
		if err := s.overdue(b, m, now); err != nil {
			return err
		}
		if r.State = string(m.Status); m.Status.Ended() {
			return s.commit(ctx, t, b, m)
		}
		c := Change{On: message.OnRefused, By: by.Actor, Now: now, Code: message.CodeCancelled, Text: by.Reason}
		if brought {
			c.Code = message.CodeRejected
		}
		if c.Text == "" {
			c.Text = map[bool]string{false: "its sender took it back", true: "it was taken out of msg_in"}[brought]
		}
		if err := s.Move(b, m, c); err != nil {
			return err
		}
		s.AuditIn(b, by, "cancel", path(id))
		r.Changed, r.State = true, string(m.Status)
		return s.commit(ctx, t, b, m)
	})
	return r, err
}

// lock locks a message, and reads it without its texts; nil: there is none.
func (s *Store) lock(ctx context.Context, t *db.Txn, id uuid.UUID) (m *Message, now time.Time, err error) {
	var list []*Message
	b := &pgx.Batch{}
	b.Queue(`SELECT `+briefColumns+`
		FROM postern.message m
		WHERE m.message_id = $1
		FOR UPDATE`, id).Query(collect(&list))
	if err := t.Send(ctx, b); err != nil || len(list) == 0 {
		return nil, now, err
	}
	now, err = s.now(ctx, t)
	return list[0], now, err
}
