package messages

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/flows"
)

// JobEnd is how a job of a message ended, as the result of the message says it.
type JobEnd struct {
	ID       string          `json:"id"`
	Ref      *int64          `json:"ref"`
	Status   string          `json:"status"`
	Result   json.RawMessage `json:"result"`
	ExitCode *int            `json:"exit_code"`
	Error    *JobError       `json:"error"`
}

// JobError is why a job did not end well.
type JobError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Ends is the result of a message of type job.
type Ends struct {
	Jobs      []JobEnd `json:"jobs"`
	Truncated bool     `json:"truncated,omitempty"` // their results are too large to be told together
}

// maxResult is how many bytes of results of jobs are told with their message.
const maxResult = 1 << 20

// Settle ends messages whose jobs have all ended, each with a result; it returns how many. A deadline that was over
// before makes the result late.
//
// Two processes that do it at one time take different messages. An end of a job waits for the lock of its message; of a
// message whose count is zero none is to come.
func (s *Store) Settle(ctx context.Context) (n int, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		n = 0
		var list []*Message
		b := &pgx.Batch{}
		b.Queue(`SELECT `+briefColumns+`
			FROM postern.message m
			WHERE m.jobs_open = 0
			ORDER BY m.message_id
			LIMIT $1
			FOR UPDATE SKIP LOCKED`, routedAtOnce).Query(collect(&list))
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if len(list) == 0 {
			return t.Rollback(ctx)
		}
		now, err := s.now(ctx, t)
		if err != nil {
			return err
		}
		b = &pgx.Batch{}
		for size := 0; n < len(list) && size < maxTexts; n++ {
			m := list[n]
			ends, err := s.endsOf(ctx, t, m.ID)
			if err != nil {
				return err
			}
			size += len(ends)
			if err := s.settle(b, m, ends, now); err != nil {
				return err
			}
		}
		return s.commit(ctx, t, b, list...)
	})
	if err != nil {
		return 0, err
	}
	s.heardOf()
	return n, nil
}

// settle ends one message.
func (s *Store) settle(b *pgx.Batch, m *Message, ends json.RawMessage, now time.Time) error {
	m.JobsOpen = nil
	if err := s.overdue(b, m, now); err != nil {
		return err
	}
	if m.Status.Ended() {
		s.Late(b, m, message.OnResult, 0, m.Actor, ends, now)
		b.Queue(`UPDATE postern.message SET jobs_open = NULL WHERE message_id = $1`, m.ID)
		return nil
	}
	answer := &Message{Actor: m.Actor, Format: message.DefaultFormat, Result: ends}
	return s.answer(b, m, answer, Change{By: "jobs", Now: now})
}

// answer ends a message that is acknowledged with its result, a message of its own. That stands in the boxes of both,
// and is processed with them: it is handed to no receiver.
func (s *Store) answer(b *pgx.Batch, m, result *Message, c Change) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	result.ID, result.ReplyTo, result.Type = id, &m.ID, message.Result
	result.Context, result.Target, result.Peer = m.Target, m.Context, m.Peer
	if here := s.ContextByID(m.Context); here != nil {
		result.ToContext = here.Name
	}
	return s.Answer(b, m, result, c)
}

// Answer is answer for a result whose ends the caller has filled in: one that came from a peer.
func (s *Store) Answer(b *pgx.Batch, m, result *Message, c Change) error {
	at := func(on message.Event) Change { return Change{On: on, By: c.By, Now: c.Now} }
	if err := s.Insert(b, result, at(message.OnCreated), at(message.OnDelivered), at(message.OnAcknowledged),
		at(message.OnProcessed)); err != nil {
		return err
	}
	c.On, c.Detail = message.OnResult, "message "+result.ID.String()
	return s.Move(b, m, c)
}

// endsOf reads how the jobs of a message ended.
func (s *Store) endsOf(ctx context.Context, t *db.Txn, id uuid.UUID) (json.RawMessage, error) {
	jobs, err := s.flows.EndsOfMessage(ctx, t, id)
	if err != nil {
		return nil, err
	}
	out, size := Ends{Jobs: []JobEnd{}}, 0
	for _, j := range jobs {
		size += len(j.Result) + len(j.Error)
	}
	out.Truncated = size > maxResult
	for _, j := range jobs {
		out.Jobs = append(out.Jobs, endOf(j, out.Truncated))
	}
	return json.Marshal(out)
}

func endOf(j *flows.Job, short bool) JobEnd {
	e := JobEnd{ID: j.ID.String(), Ref: j.Ref, Status: string(j.Status), Result: j.Result, ExitCode: j.ExitCode}
	if short || e.Result == nil {
		e.Result = json.RawMessage("null")
	}
	if j.Code != "" {
		e.Error = &JobError{j.Code, j.Error}
		if short {
			e.Error.Message = ""
		}
	}
	return e
}
