package flows

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/pg/db"
)

// MessageJobs are the jobs that a message brings, in the commit in which it is delivered.
type MessageJobs struct {
	Jobs []*Job
	Open int // how many of them have not ended
}

// TakeIn adds to b the jobs of a message, all or none. by is whose they are. A job that is there under its ref, with
// the same content and of no other message, becomes one of this message. Outcomes besides: Invalid; Conflict
// "idempotency_conflict" for a ref that names another job. Once t has committed, Taken posts their transactions. inputs
// are the results of the jobs that they need where they come from, by their refs; nil: they need none.
//
// The row of the message is locked. An end of one of its jobs locks the job first, and then the message: a job that is
// there belongs to no message, so that its end waits for none.
func (s *Store) TakeIn(ctx context.Context, t *db.Txn, b *pgx.Batch, by db.By, message uuid.UUID,
	specs []flow.Spec, inputs json.RawMessage) (m MessageJobs, err error) {
	if err := s.CheckMessage(ctx, by.Context, specs); err != nil {
		return m, err
	}
	equip(b, by.Context)
	for i, spec := range specs {
		hash, err := hashOf(spec)
		if err != nil {
			return m, err
		}
		there, now, err := s.sameJob(ctx, t, by, spec.Ref, "")
		if err != nil {
			return m, err
		}
		if there != nil {
			ended, err := s.joinMessage(ctx, t, b, there, message, hash, fmt.Sprintf("/job/%d/ref", i))
			if err != nil {
				return m, err
			}
			if !ended {
				m.Open++
			}
			m.Jobs = append(m.Jobs, there)
			continue
		}
		id, err := uuid.NewV7()
		if err != nil {
			return m, err
		}
		if spec.Env == nil {
			spec.Env = map[string]string{}
		}
		j := &Job{Spec: spec, ID: id, Actor: by.Actor, Message: &message, Inputs: inputs, context: by.Context,
			TxOpen: true, hash: hash}
		open := len(spec.Prerequisites) > 0
		if err := s.create(b, j, change{on: flow.JobReleased, open: open, by: by.Actor, now: now}); err != nil {
			return m, err
		}
		if open {
			setDeadlines(b, []uuid.UUID{j.ID}, now)
		}
		m.Jobs, m.Open = append(m.Jobs, j), m.Open+1
	}
	return m, nil
}

// CheckMessage refuses jobs of a message whose script types no dispatcher of a context has, and those for queues that
// were not configured, where the context takes declared ones only.
func (s *Store) CheckMessage(ctx context.Context, contextID int32, specs []flow.Spec) error {
	c := s.ContextByID(contextID)
	for i, spec := range specs {
		if c == nil || !c.DeclaredQueues || spec.Queue == "" {
			continue
		}
		if declared, err := s.Declared(ctx, contextID, spec.Queue); err != nil {
			return err
		} else if !declared {
			return fault.New(fault.Invalid, "unknown_queue", "queue %q is not configured, and context %s takes "+
				"declared queues only: PUT /queues/{name} declares one", fault.Clip(spec.Queue), c.Name).
				About(fmt.Sprintf("/job/%d/queue", i))
		}
	}
	return s.knowsTypes(ctx, contextID, "/job", specs)
}

// joinMessage makes a job that is there one of a message, and says whether it has ended. Its row stays locked.
func (s *Store) joinMessage(ctx context.Context, t *db.Txn, b *pgx.Batch, j *Job, message uuid.UUID, hash []byte,
	at string) (ended bool, err error) {
	var of *uuid.UUID
	lock := &pgx.Batch{}
	lock.Queue(`SELECT message_id, ended_at IS NOT NULL FROM postern.job WHERE job_id = $1 FOR UPDATE`, j.ID).
		QueryRow(func(row pgx.Row) error { return row.Scan(&of, &ended) })
	if err := t.Send(ctx, lock); err != nil {
		return false, err
	}
	switch {
	case !bytes.Equal(j.hash, hash):
		return false, fault.New(fault.Conflict, "idempotency_conflict",
			"ref %d names job %s, which differs: choose another one", *j.Ref, j.ID).About(at)
	case of != nil && *of != message:
		return false, fault.New(fault.Conflict, "idempotency_conflict",
			"ref %d names job %s, which another message has brought: choose another one", *j.Ref, j.ID).About(at)
	}
	b.Queue(`UPDATE postern.job SET message_id = $2 WHERE job_id = $1`, j.ID, message)
	j.Message = &message
	return ended, nil
}

// Taken posts the transactions of jobs of a message, after the commit of TakeIn. What it does not get to, a later look
// posts.
func (s *Store) Taken(ctx context.Context, m MessageJobs) error {
	if err := s.Reconfigured(ctx); err != nil {
		return err
	}
	for _, j := range m.Jobs {
		if j.Tx != "" {
			continue
		}
		if err := s.posted(ctx, []*Job{j}); err != nil {
			return err
		}
	}
	return nil
}

// oneEnded adds to b that a job of a message has ended. Its row comes behind those of jobs in the order of locks.
func (s *Store) oneEnded(b *pgx.Batch, message uuid.UUID) {
	s.CountDown(b, message)
	s.ofMessages.Store(true)
}

// JobsOfMessage lists the jobs that a message has brought, in the order in which it named them.
func (s *Store) JobsOfMessage(ctx context.Context, message uuid.UUID) ([]*Job, error) {
	rows, err := s.Db(ctx).Query(ctx, `SELECT `+jobColumns+jobMore+`
		FROM postern.job j
		WHERE j.message_id = $1
		ORDER BY j.job_id`, message)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanJobMore)
	return list, db.Known(err)
}

// EndsOfMessage is JobsOfMessage within an SQL transaction, with what is needed of their ends.
func (s *Store) EndsOfMessage(ctx context.Context, t *db.Txn, message uuid.UUID) (list []*Job, err error) {
	b := &pgx.Batch{}
	b.Queue(`SELECT `+jobColumns+`
		FROM postern.job j
		WHERE j.message_id = $1
		ORDER BY j.job_id`, message).Query(collectJobs(&list))
	return list, t.Send(ctx, b)
}
