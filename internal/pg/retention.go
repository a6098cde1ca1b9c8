package pg

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Keep notes for how many days what has ended is kept, 0 for ever: spans of days that any process makes from now on
// have the width that goes with it (postern.span_width). Older spans stay as they are.
func (s *Store) Keep(ctx context.Context, keep time.Duration) error {
	_, err := s.Exec(ctx, `UPDATE postern.retained SET keep = nullif($1::int, 0)
		WHERE keep IS DISTINCT FROM nullif($1::int, 0)`, int(keep.Hours()/24))
	return err
}

// Retain drops the spans in which everything ended at least keep ago, the oldest first, and returns how many. A span
// goes as a whole, once its last day is old enough, so that its first day is kept for at most the width of a span
// longer. It stops at a span that is held, and report.retention says by what. Survivors keep their ids and uids, in
// partitions of their own: transactions that have not ended, and ended ones that a Maker waits for. So no context holds
// a span. A uid is free again when its transaction is forgotten.
//
// The keys go first, in chunks, so that dropping the span is short; so do the rows of dependencies and redrives. Until
// the drop, an ended transaction can still be read by its id. A client that posts a forgotten uid meanwhile gets a new
// transaction, as it does afterwards. Two processes at once do the same, and the second one finds the span gone.
func (s *Store) Retain(ctx context.Context, keep time.Duration) (dropped int, err error) {
	now, err := s.Now(ctx)
	if err != nil {
		return 0, err
	}
	before := now.Add(-keep)
	for {
		rows, err := s.Pool().Query(ctx, `SELECT s.first - '1970-01-01', s.last - '1970-01-01' FROM postern.spans s
			WHERE s.relation = 'task' AND s.last < ($1::timestamptz AT TIME ZONE 'UTC')::date
			ORDER BY s.first LIMIT 1`, before)
		if err != nil {
			return dropped, db.Known(err)
		}
		oldest, err := pgx.CollectRows(rows, pgx.RowToStructByPos[db.Span])
		if err != nil {
			return dropped, db.Known(err)
		}
		held := ""
		if len(oldest) > 0 {
			if held, err = s.dropSpan(ctx, oldest[0], before); err != nil {
				return dropped, err
			}
		}
		if _, err := s.Exec(ctx, `UPDATE postern.retained SET held_by = $1, looked_at = $2, before = ($3::timestamptz AT TIME ZONE 'UTC')::date`, held, now, before); err != nil {
			return dropped, err
		}
		if len(oldest) == 0 || held != "" {
			return dropped, errors.Join(s.tidyOld(ctx, before), s.forget(ctx, before))
		}
		dropped++
	}
}

// RetainAll notes that nothing is dropped.
func (s *Store) RetainAll(ctx context.Context) error {
	_, err := s.Exec(ctx, `UPDATE postern.retained SET held_by = 'no retention is set: everything is kept', before = NULL WHERE before IS NOT NULL`)
	return err
}

// A span is gone through in chunks of retainAtOnce, each a short statement, with rests as long as they took.
// retainMost is how many may not have ended.
const retainAtOnce, retainMost = 2000, 10000

// dropSpan drops one span, or says what holds it.
func (s *Store) dropSpan(ctx context.Context, span db.Span, before time.Time) (held string, err error) {
	var by *string
	first, last := span.First.Time(), span.Last.Time()
	err = s.Pool().QueryRow(ctx, `SELECT postern.day_held_by($1, $2, $3)`, first, last, before).Scan(&by)
	if err != nil || by != nil {
		return deref(by), db.Known(err)
	}
	queues, seqs, err := s.survivors(ctx, first, last)
	if err != nil {
		return "", err
	}
	awaitedQueues, awaitedSeqs, err := s.awaitedOf(ctx, first, last)
	if err != nil {
		return "", err
	}
	queues, seqs = append(queues, awaitedQueues...), append(seqs, awaitedSeqs...)
	if len(queues) > retainMost {
		return fmt.Sprintf("more than %d transactions of these days have not ended, "+
			"or events or batches have not heard of their ends", retainMost), nil
	}
	if err := s.forgetKeys(ctx, span, before, awaitedQueues, awaitedSeqs); err != nil {
		return "", err
	}
	err = s.WriteRow(ctx, "SELECT postern.drop_day($1, $2, $3, $4, $5)",
		[]any{first, last, before, queues, seqs}, &by)
	if db.SQLState(err) == "55P03" { // of the partition itself
		return "the tables are in use: it is tried again in an hour", nil
	}
	return deref(by), err
}

// survivors are the positions of what has not ended of a span, or more than retainMost of them. As its last day is
// over, there will be no others; those that end meanwhile are noticed when it is dropped.
func (s *Store) survivors(ctx context.Context, first, last time.Time) (queues, seqs []int64, err error) {
	queues, seqs = []int64{}, []int64{}
	for queue, seq, n := int64(-1), int64(0), retainAtOnce; n == retainAtOnce && len(queues) <= retainMost; {
		began := time.Now()
		var q, p []int64
		err := s.Pool().QueryRow(ctx, `WITH c AS MATERIALIZED (SELECT t.queue_id, t.seq, EXISTS (SELECT FROM postern.outcome o
					WHERE (o.queue_id, o.seq, o.day) = (t.queue_id, t.seq, t.day) OFFSET 0) AS ended
				FROM postern.task t WHERE t.day BETWEEN $1 AND $5 AND (t.queue_id, t.seq) > ($2, $3)
					ORDER BY t.queue_id, t.seq LIMIT $4)
			SELECT count(*), coalesce((SELECT l.queue_id FROM c l ORDER BY l.queue_id DESC, l.seq DESC LIMIT 1), $2), coalesce((SELECT l.seq FROM c l ORDER BY l.queue_id DESC, l.seq DESC LIMIT 1), $3),
				array_agg(queue_id) FILTER (WHERE NOT ended), array_agg(seq) FILTER (WHERE NOT ended)
			FROM c`, first, queue, seq, retainAtOnce, last).Scan(&n, &queue, &seq, &q, &p)
		if err != nil {
			return nil, nil, db.Known(err)
		}
		queues, seqs = append(queues, q...), append(seqs, p...)
		if n == retainAtOnce {
			if err := Rest(ctx, time.Since(began)); err != nil {
				return nil, nil, err
			}
		}
	}
	return queues, seqs, nil
}

// forgetKeys deletes the other rows of transactions of a span that ended before a time: uids, dependencies and
// redrives. A dependent of one of them knows of its end, unless a ripple is still to tell: then its other
// dependencies are left, and an end that can be read no more does not hold it. A transaction that ends while the
// chunks go by holds the span, and keeps its own, as those that are awaited do.
func (s *Store) forgetKeys(ctx context.Context, span db.Span, before time.Time, queues, seqs []int64) error {
	for queue, seq, n := int64(-1), int64(0), retainAtOnce; n == retainAtOnce; {
		began := time.Now()
		err := s.WriteRow(ctx, `WITH c AS MATERIALIZED (SELECT t.context_id, t.uid, t.queue_id, t.seq FROM postern.task t
				WHERE t.day BETWEEN $1 AND $8 AND (t.queue_id, t.seq) > ($2, $3)
					AND EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq, o.day) = (t.queue_id, t.seq, t.day) AND o.done_at < $5)
					AND NOT EXISTS (SELECT FROM ROWS FROM (unnest($6::bigint[]), unnest($7::bigint[])) a(queue_id, seq) WHERE (a.queue_id, a.seq) = (t.queue_id, t.seq))
				ORDER BY t.queue_id, t.seq LIMIT $4),
			d AS (DELETE FROM postern.idempotency i USING c WHERE (i.context_id, i.key, i.queue_id, i.seq) = (c.context_id, c.uid, c.queue_id, c.seq)),
			e AS (DELETE FROM postern.dependency d USING c WHERE (d.queue_id, d.seq) = (c.queue_id, c.seq)),
			g AS (DELETE FROM postern.dependency d USING c WHERE (d.on_queue, d.on_seq) = (c.queue_id, c.seq)
				AND NOT EXISTS (SELECT FROM postern.ripple r WHERE (r.queue_id, r.seq) = (c.queue_id, c.seq) OFFSET 0)),
			f AS (DELETE FROM postern.redrive r USING c WHERE (r.queue_id, r.seq) = (c.queue_id, c.seq))
			SELECT count(*), coalesce((SELECT l.queue_id FROM c l ORDER BY l.queue_id DESC, l.seq DESC LIMIT 1), $2), coalesce((SELECT l.seq FROM c l ORDER BY l.queue_id DESC, l.seq DESC LIMIT 1), $3) FROM c`,
			[]any{span.First.Time(), queue, seq, retainAtOnce, before, queues, seqs, span.Last.Time()},
			&n, &queue, &seq)
		if err != nil {
			return err
		}
		if n == retainAtOnce {
			if err := Rest(ctx, time.Since(began)); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitedOf returns the positions of transactions of a span that have ended and that others wait for, or more than
// retainMost of them. There will be no others, since a post is now of a later day.
func (s *Store) awaitedOf(ctx context.Context, first, last time.Time) (queues, seqs []int64, err error) {
	err = s.Pool().QueryRow(ctx, `SELECT coalesce(array_agg(a.queue_id), '{}'), coalesce(array_agg(a.seq), '{}') FROM (
		SELECT a.queue_id, a.seq FROM (`+s.Awaited()+`) a
		CROSS JOIN LATERAL (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq, o.day) = (a.queue_id, a.seq, a.day) OFFSET 0) o
		WHERE a.day BETWEEN $1 AND $3 LIMIT $2) a`, first, retainMost+1, last).Scan(&queues, &seqs)
	return queues, seqs, db.Known(err)
}

// tidyOld removes what survived its span and has ended since, unless a maker waits for it or a teller has still to tell
// of it: few rows, in partitions of their own.
func (s *Store) tidyOld(ctx context.Context, before time.Time) error {
	var exists bool
	if err := s.Pool().QueryRow(ctx, `SELECT to_regclass('postern.task_old') IS NOT NULL`).Scan(&exists); err != nil || !exists {
		return db.Known(err)
	}
	keeps, forgets := s.kept()
	_, err := s.Exec(ctx, `WITH awaited AS MATERIALIZED (SELECT a.* FROM (`+s.Awaited()+`) a WHERE a.day < (SELECT r.since FROM postern.retained r)),
		gone AS (DELETE FROM postern.outcome_old o WHERE o.done_at < $1 AND NOT (`+keeps+`)
				AND NOT EXISTS (SELECT FROM awaited a WHERE (a.queue_id, a.seq, a.day) = (o.queue_id, o.seq, o.day))
			RETURNING o.queue_id, o.seq),
		dependencies AS (DELETE FROM postern.dependency x USING gone g WHERE (x.queue_id, x.seq) = (g.queue_id, g.seq)),
		causes AS (DELETE FROM postern.dependency x USING gone g WHERE (x.on_queue, x.on_seq) = (g.queue_id, g.seq)
			AND NOT EXISTS (SELECT FROM postern.ripple r WHERE (r.queue_id, r.seq) = (g.queue_id, g.seq) OFFSET 0)),
		redrives AS (DELETE FROM postern.redrive x USING gone g WHERE (x.queue_id, x.seq) = (g.queue_id, g.seq)),
		`+forgets+`
		attempts AS (DELETE FROM postern.attempt_old x USING gone g WHERE (x.queue_id, x.seq) = (g.queue_id, g.seq)),
		tasks AS (DELETE FROM postern.task_old x USING gone g WHERE (x.queue_id, x.seq) = (g.queue_id, g.seq) RETURNING x.context_id, x.uid, x.queue_id, x.seq)
		DELETE FROM postern.idempotency i USING tasks t WHERE (i.context_id, i.key, i.queue_id, i.seq) = (t.context_id, t.uid, t.queue_id, t.seq)`, before)
	return err
}

// missing says that a transaction is not there: that its day was dropped, or that it never was.
func (s *Store) missing(ctx context.Context, id outbox.ID) error {
	var since time.Time
	if err := s.Pool().QueryRow(ctx, `SELECT r.since FROM postern.retained r`).Scan(&since); err != nil {
		return db.Known(err)
	}
	if id.Day < outbox.DayOf(since) {
		return fault.New(fault.NotFound, "expired", "transaction %s is of %s, which retention has dropped: everything before %s is gone", id,
			id.Day.Time().Format(time.DateOnly), since.Format(time.DateOnly))
	}
	return fault.New(fault.NotFound, "not_found", "no transaction %s", id)
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// InChunks runs a statement until it finds fewer than it takes, with rests as long as it took.
func (s *Store) InChunks(ctx context.Context, chunk func(atOnce int) (n int, err error)) error {
	for n := forgetAtOnce; n == forgetAtOnce; {
		began := time.Now()
		var err error
		if n, err = chunk(forgetAtOnce); err == nil && n == forgetAtOnce {
			err = Rest(ctx, time.Since(began))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Rest waits, or returns the error of a context that ends meanwhile.
func Rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// forgetAtOnce is how many rows one statement looks at.
const forgetAtOnce = 2000
