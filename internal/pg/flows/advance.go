package flows

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/machine"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// dueAtOnce is how many jobs one commit brings to their ends.
const dueAtOnce = 100

// verdict is how the transaction of a job has ended.
type verdict struct {
	queue, seq int64
	job        *uuid.UUID // nil: it carries none
	state      *string    // nil: its outcome was dropped by retention
	code, text string
	hash       string
}

// Advance brings jobs whose transactions have ended to their ends, and returns how many it looked at. The recorded
// result is that of the try whose id is the hash of the outcome, so that it and the core's verdict cannot differ.
//
// Two processes that do it at one time take different rows of job_due. The rows of jobs are locked in the order of
// their ids, behind no try.
func (s *Store) Advance(ctx context.Context) (n int, err error) {
	var list []verdict
	err = s.Run(ctx, func(t *db.Txn) error {
		list = nil
		b := &pgx.Batch{}
		b.Queue(`SELECT d.queue_id, d.seq, j.job_id, o.state, coalesce(o.error_code, ''), coalesce(o.error, ''),
			coalesce(o.hash, '')
			FROM (SELECT d.* FROM postern.job_due d ORDER BY d.at LIMIT $1 FOR UPDATE SKIP LOCKED) d
			LEFT JOIN LATERAL (SELECT * FROM postern.outcome o
			WHERE (o.queue_id, o.seq, o.day) = (d.queue_id, d.seq, d.day) OFFSET 0) o ON true
			LEFT JOIN postern.job j ON (j.queue_id, j.seq) = (d.queue_id, d.seq)
			ORDER BY j.job_id`, dueAtOnce).Query(func(rows pgx.Rows) error {
			var v verdict
			_, err := pgx.ForEachRow(rows, []any{&v.queue, &v.seq, &v.job, &v.state, &v.code, &v.text, &v.hash},
				func() error {
					list = append(list, v)
					return nil
				})
			return err
		})
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if len(list) == 0 {
			return t.Rollback(ctx)
		}
		return s.advance(ctx, t, list)
	})
	return len(list), err
}

func (s *Store) advance(ctx context.Context, t *db.Txn, list []verdict) error {
	var ids, hashes []uuid.UUID
	for _, v := range list {
		if v.job == nil {
			continue
		}
		ids = append(ids, *v.job)
		if id, err := uuid.Parse(v.hash); err == nil {
			hashes = append(hashes, id)
		}
	}
	var now time.Time
	var locked []*Job
	var tries []*Try
	b := &pgx.Batch{}
	b.Queue(`SELECT `+jobColumns+` FROM postern.job j WHERE j.job_id = ANY ($1) ORDER BY j.job_id FOR UPDATE`,
		ids).Query(collectJobs(&locked))
	b.Queue(`SELECT `+tryColumns+` FROM postern.job_try t WHERE t.try_id = ANY ($1)`,
		hashes).Query(collectTries(&tries))
	s.ReadNow(b, &now)
	if err := t.Send(ctx, b); err != nil {
		return err
	}
	b = &pgx.Batch{}
	var queues, seqs []int64
	for _, v := range list {
		queues, seqs = append(queues, v.queue), append(seqs, v.seq)
		i := slices.IndexFunc(locked, func(j *Job) bool { return v.job != nil && j.ID == *v.job })
		if i < 0 {
			continue
		}
		var try *Try
		if k := slices.IndexFunc(tries, func(x *Try) bool {
			return x.ID.String() == v.hash &&
				x.Job == locked[i].ID
		}); k >= 0 {
			try = tries[k]
		}
		if err := s.conclude(b, locked[i], v, try, now); err != nil {
			return err
		}
	}
	b.Queue(`DELETE FROM postern.job_due d
		USING ROWS FROM (unnest($1::bigint[]), unnest($2::bigint[])) n(queue_id, seq)
		WHERE (d.queue_id, d.seq) = (n.queue_id, n.seq)`, queues, seqs)
	return t.Commit(ctx, b)
}

// conclude brings a job to the end that its transaction has had. A job that has ended before only learns that its
// transaction has, too, and keeps what its last try returned.
func (s *Store) conclude(b *pgx.Batch, j *Job, v verdict, try *Try, now time.Time) error {
	j.TxOpen = false
	end := flow.End{Done: v.state != nil && *v.state == string(outbox.DONE),
		Depended: v.code == "dependency_failed", Code: v.code}
	end.Tried = try != nil && (try.State == flow.Finished) == end.Done && try.EndedAt != nil
	c := change{now: now, code: v.code, text: v.text}
	switch {
	case try != nil && try.EndedAt != nil:
		c.result, c.exit, c.code, c.text = try.Result, try.ExitCode, try.Code, try.Error
		if end.Done && c.result == nil {
			c.result = json.RawMessage("{}")
		}
	case v.state == nil:
		c.code, c.text = flow.CodeResultLost, "its transaction was dropped by retention before anybody asked how it "+
			"ended"
	case c.code == "":
		c.code = *v.state
	}
	if j.Status.Ended() {
		result := []byte(nil)
		if j.Status == flow.JobError && j.Result == nil && try != nil {
			result = try.Result
		}
		b.Queue(`UPDATE postern.job SET tx_open = false, result = coalesce(result, $2::text::jsonb)
			WHERE job_id = $1`, j.ID, db.Raw(result))
		return nil
	}
	c.on = end.Event(j.Status)
	err := s.moveJob(b, j, c)
	if illegal := (*machine.Illegal)(nil); errors.As(err, &illegal) {
		c.on = flow.JobRefused
		return s.moveJob(b, j, c)
	}
	return err
}
