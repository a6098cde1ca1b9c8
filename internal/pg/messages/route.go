package messages

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/flows"
)

// routedAtOnce is how many messages one commit routes.
const routedAtOnce = 100

// Route is the Supervisor of the published design: it looks once more at the rights of who sent a message, and then
// delivers it to a context here, or lets it go to a peer; it returns how many it routed. A message of type job makes
// its jobs in the commit of its delivery, and is acknowledged with them.
//
// The oldest messages are locked, and nothing is skipped: of two processes that route at one time the second waits for
// the first, and then finds the messages behind its own. So messages of one sender are delivered in the order in which
// they were posted.
func (s *Store) Route(ctx context.Context) (n int, err error) {
	var routed []*Message
	var jobs []flows.MessageJobs
	err = s.Run(ctx, func(t *db.Txn) error {
		jobs = nil
		if routed, err = s.unrouted(ctx, t); err != nil {
			return err
		}
		if len(routed) == 0 {
			return t.Rollback(ctx)
		}
		refusals, now, err := s.allowed(ctx, t, routed)
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		for i, size := 0, 0; i < len(routed) && size < maxTexts; i++ {
			m := routed[i]
			c := Change{On: message.OnDelivered, By: "route", Now: now}
			if err := s.overdue(b, m, now); err != nil {
				return err
			}
			switch {
			case m.Status.Ended():
			case refusals[i] != nil:
				err = s.refuse(b, m, c, refusals[i])
			case m.Peer != "":
				c.On = message.OnRouted
				err = s.Move(b, m, c)
			case m.Type == message.Job:
				made, broken := s.deliverJobs(ctx, t, m, c)
				jobs, err = append(jobs, made), broken
				size += len(m.Jobs)
			default:
				err = s.Move(b, m, c)
			}
			if err != nil {
				return err
			}
		}
		return s.commit(ctx, t, b, routed...)
	})
	if err != nil {
		return 0, err
	}
	s.heardOf()
	n, away := s.ringFor(routed)
	var failed error
	if away {
		_, failed = s.Carry(ctx)
	}
	for _, made := range jobs {
		failed = errors.Join(failed, s.flows.Taken(ctx, made))
	}
	return n, failed
}

// ringFor wakes those who wait for messages that were delivered here, and says how many were routed, and whether any
// goes away.
func (s *Store) ringFor(list []*Message) (n int, away bool) {
	for _, m := range list {
		switch {
		case m.RoutedAt == nil:
			continue
		case m.Peer != "":
			away = true
		default:
			s.bells.ring(m.Target)
		}
		n++
	}
	return n, away
}

// unrouted locks the oldest messages that are to be routed, without those of contexts in quarantine.
func (s *Store) unrouted(ctx context.Context, t *db.Txn) (list []*Message, err error) {
	for held := []int32{}; ; {
		b := &pgx.Batch{}
		b.Queue(`SELECT `+briefColumns+`
			FROM postern.message m
			WHERE m.routed_at IS NULL AND m.ended_at IS NULL AND m.context_id <> ALL ($2)
			ORDER BY m.message_id
			LIMIT $1
			FOR UPDATE`, routedAtOnce, held).Query(collect(&list))
		if err := t.Send(ctx, b); err != nil {
			return nil, err
		}
		before := len(held)
		for _, m := range list {
			if s.Quarantined(m.Context, "") && !slices.Contains(held, m.Context) {
				held = append(held, m.Context)
			}
		}
		if len(held) == before {
			return list, nil
		}
	}
}

func (s *Store) refuse(b *pgx.Batch, m *Message, c Change, why *fault.Error) error {
	c.On, c.Code, c.Text = message.OnRefused, why.Code, why.Detail
	return s.Move(b, m, c)
}

// deliverJobs delivers a message of type job: its jobs are made, and it is acknowledged. What these are refused for
// refuses the message. What they are is read here, and all is sent here, so that the next message of this commit sees
// these jobs.
func (s *Store) deliverJobs(ctx context.Context, t *db.Txn, m *Message, c Change) (jobs flows.MessageJobs, err error) {
	b := &pgx.Batch{}
	b.Queue(`SELECT jobs FROM postern.message WHERE message_id = $1`, m.ID).
		QueryRow(func(row pgx.Row) error { return row.Scan((*[]byte)(&m.Jobs)) })
	if err := t.Send(ctx, b); err != nil {
		return jobs, err
	}
	b = &pgx.Batch{}
	specs, err := flow.SpecsIn("/job", m.Jobs) // an older version may have taken what is refused now
	if err == nil {
		jobs, err = s.flows.TakeIn(ctx, t, b, db.By{Context: m.Target, Actor: m.Actor, Via: "message"}, m.ID, specs,
			nil)
	}
	switch fault.KindOf(err) {
	case "":
	case fault.Invalid, fault.Conflict, fault.Forbidden:
		refused := &pgx.Batch{}
		if err := s.refuse(refused, m, c, fault.As(err)); err != nil {
			return flows.MessageJobs{}, err
		}
		return flows.MessageJobs{}, t.Send(ctx, refused)
	default:
		return jobs, err
	}
	m.JobsOpen = &jobs.Open
	acked := c
	acked.On = message.OnAcknowledged
	if err := s.Move(b, m, c, acked); err != nil {
		return jobs, err
	}
	return jobs, t.Send(ctx, b)
}
