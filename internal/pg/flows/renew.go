package flows

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Renewed is the answer to the heartbeat of a runner.
type Renewed struct {
	TTL  time.Duration
	Lost []Hold // what the runner names and does not hold
	Stop []Hold // what it is to stop
}

// Renew is the heartbeat of a runner, for all that it holds. What it holds and does not name in two calls is offered
// to others, since the answer that handed it out is lost: no runner executes it, so that this is no lapse. Outcomes
// besides: NotFound; Conflict "stale_epoch".
func (s *Store) Renew(ctx context.Context, contextID int32, name string, epoch int64, holds []Hold) (out *Renewed,
	err error) {
	var offered []offer
	err = s.Run(ctx, func(t *db.Txn) error {
		r, err := s.lockRunner(ctx, t, contextID, name, epoch)
		if err != nil {
			return err
		}
		out = &Renewed{TTL: r.TTL}
		b := &pgx.Batch{}
		lost, missed := r.compare(b, holds)
		out.Lost = lost
		named := map[Hold]bool{}
		for _, h := range holds {
			named[h] = true
		}
		for _, v := range r.tries {
			if h := (Hold{v.ID, v.Fence}); v.stopping && named[h] {
				out.Stop = append(out.Stop, h)
			}
		}
		if missed, err = s.lockTries(ctx, t, missed); err != nil {
			return err
		}
		if offered, err = s.takeBack(ctx, t, b, missed, flow.TryUnheld, r.now); err != nil {
			return err
		}
		r.saw(b, false)
		r.tell(b)
		if b.Len() == 0 {
			return t.Rollback(ctx)
		}
		return t.Commit(ctx, b)
	})
	if err != nil {
		return nil, err
	}
	if len(offered) > 0 {
		s.offered(offered)
	}
	return out, nil
}

// tell adds to b what this answer says of the ttl, where it differs from what the last two said. A lower one counts
// from the second heartbeat on: the runner that sends it may have got the answer to the one before, or none. The row is
// locked, so that what is written is what is answered.
func (r *heldRunner) tell(b *pgx.Batch) {
	if r.untold {
		b.Queue(`UPDATE postern.runner SET told_before = told_ttl, told_ttl = ttl WHERE runner_id = $1`, r.ID)
	}
}

// lockTries locks tries that were read as Held, and leaves out those that are no more, or that another has locked.
func (s *Store) lockTries(ctx context.Context, t *db.Txn, list []*Try) (locked []*Try, err error) {
	if len(list) == 0 {
		return nil, nil
	}
	ids := make([]uuid.UUID, len(list))
	for i, v := range list {
		ids[i] = v.ID
	}
	b := &pgx.Batch{}
	b.Queue(`SELECT `+tryColumns+`
		FROM postern.job_try t
		WHERE t.try_id = ANY ($1) AND t.state = 'Held'
		ORDER BY t.try_id
		FOR UPDATE OF t SKIP LOCKED`, ids).Query(collectTries(&locked))
	return locked, t.Send(ctx, b)
}

// Line is a piece of the output of a try.
type Line struct {
	N      int
	Stream string
	Text   string
}

// Logged is a piece as it was stored.
type Logged struct {
	Line
	At      time.Time
	Try     uuid.UUID
	Attempt int
	Fence   int64
}

// AppendLog appends to the output of a try that is held under a fence. A row that is there already is not written
// again; beyond flow.MaxLog nothing is. NotFound; Conflict "stale_fence".
func (s *Store) AppendLog(ctx context.Context, contextID int32, id uuid.UUID, fence int64, lines []Line) error {
	return s.Run(ctx, func(t *db.Txn) error {
		v, now, err := s.lockTry(ctx, t, contextID, id)
		if err != nil {
			return err
		}
		if v.State != flow.Held || v.Fence != fence {
			return stale(v, fence)
		}
		b := &pgx.Batch{}
		appendLines(b, id, fence, now, lines)
		return t.Commit(ctx, b)
	})
}

// appendLines adds to b what is appended to the output of a try, whose row is locked. Each fence has flow.MaxLog of its
// own, as its lines are numbered anew: log_from is what the fences before log_fence have written. logged counts all of
// them and never falls, since what a peer has heard of a job is compared with it.
func appendLines(b *pgx.Batch, id uuid.UUID, fence int64, now time.Time, lines []Line) {
	var ns []int
	var streams, texts []string
	for _, l := range lines {
		ns, streams, texts = append(ns, l.N), append(streams, l.Stream), append(texts, l.Text)
	}
	b.Queue(`WITH t AS (
				SELECT t.logged - CASE WHEN t.log_fence < $2 THEN t.logged ELSE t.log_from END AS used
				FROM postern.job_try t
				WHERE t.try_id = $1),
			fresh AS (
				INSERT INTO postern.try_log AS l (try_id, fence, n, at, stream, text)
				SELECT $1, $2, n.n, $3, n.stream, n.text
				FROM (SELECT x.*, coalesce(sum(octet_length(x.text)) OVER (ORDER BY x.n), 0) AS size
					FROM ROWS FROM (unnest($4::int[]), unnest($5::text[]), unnest($6::text[])) x(n, stream, text)) n
				JOIN t ON t.used + n.size <= $7
				ON CONFLICT DO NOTHING
				RETURNING octet_length(l.text) AS size)
			UPDATE postern.job_try
			SET logged = logged + (SELECT coalesce(sum(f.size), 0)::int FROM fresh f),
				log_from = CASE WHEN log_fence < $2 THEN logged ELSE log_from END, log_fence = greatest(log_fence, $2)
			WHERE try_id = $1`, id, fence, now, ns, streams, texts, flow.MaxLog)
}

// lockTry locks a try.
func (s *Store) lockTry(ctx context.Context, t *db.Txn, contextID int32, id uuid.UUID) (v *Try, now time.Time,
	err error) {
	var list []*Try
	b := &pgx.Batch{}
	b.Queue(`SELECT `+tryColumns+`
		FROM postern.job_try t
		WHERE t.try_id = $1 AND t.context_id = $2
		FOR UPDATE OF t`, id, contextID).Query(collectTries(&list))
	b.Queue(`SELECT coalesce($1::timestamptz, clock_timestamp())`,
		s.LeaseNow()).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
	if err := t.Send(ctx, b); err != nil {
		return nil, now, err
	}
	if len(list) == 0 {
		return nil, now, fault.New(fault.NotFound, "not_found", "no try %s: the runner ends its script", id)
	}
	return list[0], now, nil
}

func stale(v *Try, fence int64) *fault.Error {
	if v.State == flow.Held {
		return fault.New(fault.Conflict, "stale_fence", "try %s is held under fence %d, not %d: another runner has "+
			"it, or had it since", v.ID, v.Fence, fence)
	}
	return fault.New(fault.Conflict, "stale_fence", "try %s is %s: nobody holds it under fence %d", v.ID, v.State,
		fence)
}

// Logs lists the output of the tries of a job, after a place.
func (s *Store) Logs(ctx context.Context, contextID int32, job uuid.UUID, after LogPlace, limit int) ([]*Logged,
	error) {
	if _, err := s.Job(ctx, contextID, job); err != nil {
		return nil, err
	}
	rows, err := s.Db(ctx).Query(ctx, `SELECT l.n, l.stream, l.text, l.at, l.try_id, t.attempt, l.fence
		FROM postern.job_try t
		JOIN postern.try_log l ON l.try_id = t.try_id
		WHERE t.job_id = $1
			AND (t.attempt, l.fence, l.n) > ($2, $3, $4)
		ORDER BY t.attempt, l.fence, l.n
		LIMIT $5`, job, after.Attempt, after.Fence, after.N, limit)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanLogged)
	return list, db.Known(err)
}

func scanLogged(row pgx.CollectableRow) (*Logged, error) {
	l := &Logged{}
	return l, row.Scan(&l.N, &l.Stream, &l.Text, &l.At, &l.Try, &l.Attempt, &l.Fence)
}

// LastLogs are the last so many pieces of the output of a job, in their order.
func (s *Store) LastLogs(ctx context.Context, contextID int32, job uuid.UUID, last int) ([]*Logged, error) {
	if _, err := s.Job(ctx, contextID, job); err != nil {
		return nil, err
	}
	rows, err := s.Db(ctx).Query(ctx, `SELECT x.*
		FROM postern.job_try t
		CROSS JOIN LATERAL (SELECT l.n, l.stream, l.text, l.at, l.try_id, t.attempt, l.fence
			FROM postern.try_log l
			WHERE l.try_id = t.try_id
			ORDER BY l.fence DESC, l.n DESC
			LIMIT $2) x
		WHERE t.job_id = $1
		ORDER BY x.attempt DESC, x.fence DESC, x.n DESC
		LIMIT $2`, job, last)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanLogged)
	slices.Reverse(list)
	return list, db.Known(err)
}

// LogPlace is where a piece of output stands among those of its job.
type LogPlace struct {
	Attempt int   `json:"attempt"`
	Fence   int64 `json:"fence"`
	N       int   `json:"n"`
}

// keepLate records what was said of a try by one that holds it no more: once for each fence.
func keepLate(b *pgx.Batch, v *Try, fence int64, what string, body any, now time.Time) {
	text, err := json.Marshal(body)
	if err != nil {
		text = []byte("{}")
	}
	b.Queue(`INSERT INTO postern.try_late (try_id, fence, at, what, body)
		VALUES ($1, $2, $3, $4, $5::text::jsonb)
		ON CONFLICT DO NOTHING`, v.ID, fence, now, what, string(text))
}
