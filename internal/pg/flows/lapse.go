package flows

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Lapse takes back what runners hold that were silent for longer than their ttl (see patience), and ends what they held
// for too long, or did not stop when they were told to. It is repeated: what cannot be locked now is left to the next
// time. It returns how many tries it moved.
//
// The row of the runner is locked before its tries, as in a claim, and its time compared behind that lock: a heartbeat
// comes before that and is seen, or after it and is told what was lost.
func (s *Store) Lapse(ctx context.Context) (n int, err error) {
	silent, err := s.silent(ctx)
	if err != nil {
		return 0, err
	}
	for _, runner := range silent {
		k, err := s.lapseOf(ctx, runner)
		if n += k; err != nil {
			return n, err
		}
	}
	over, err := s.overdue(ctx)
	if n += over; err != nil {
		return n, err
	}
	over, err = s.overdueNeeds(ctx)
	return n + over, err
}

// Forget removes the runners that were made by their registration and that were silent for a week, such as those that
// have the name of a pod. One that holds a try or is paused stays. One that comes back registers anew.
//
// A claim locks the row of its runner and raises seen_at before it takes anything: its row is read again behind the
// lock, and is left alone.
func (s *Store) Forget(ctx context.Context) error {
	_, err := s.Exec(ctx, `UPDATE postern.runner SET removed_at = n.now, version = version + 1
		FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) n
		WHERE made_itself
			AND removed_at IS NULL
			AND NOT paused
			AND seen_at < n.now - interval '7 days'
			AND NOT EXISTS (SELECT FROM postern.job_try t WHERE t.runner_id = runner.runner_id AND t.state = 'Held')`,
		s.LeaseNow())
	return err
}

// silent lists runners that hold something and were not seen within their ttl.
func (s *Store) silent(ctx context.Context) ([]int32, error) {
	rows, err := s.Looks.Query(ctx, `SELECT r.runner_id
		FROM postern.runner r
		WHERE r.seen_at + `+patience+` < coalesce($1::timestamptz, clock_timestamp())
			AND EXISTS (SELECT FROM postern.job_try t
			WHERE t.runner_id = r.runner_id AND t.state = 'Held')`, s.LeaseNow())
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	return list, db.Known(err)
}

// lapseOf takes back what one runner holds, if it is silent still.
func (s *Store) lapseOf(ctx context.Context, runner int32) (n int, err error) {
	var offered []offer
	err = s.Run(ctx, func(t *db.Txn) error {
		n = 0
		var now time.Time
		var silent bool
		var list []*Try
		b := &pgx.Batch{}
		b.Queue(`SELECT true
			FROM postern.runner r
			WHERE r.runner_id = $1 AND r.seen_at + `+patience+` < coalesce($2::timestamptz, clock_timestamp())
			FOR UPDATE SKIP LOCKED`, runner, s.LeaseNow()).Query(func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&silent}, func() error { return nil })
			return err
		})
		b.Queue(`SELECT coalesce($1::timestamptz, clock_timestamp())`,
			s.LeaseNow()).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if !silent {
			return t.Rollback(ctx)
		}
		b = &pgx.Batch{}
		b.Queue(`SELECT `+tryColumns+`
			FROM postern.job_try t
			WHERE t.runner_id = $1 AND t.state = 'Held'
			ORDER BY t.try_id
			FOR UPDATE OF t SKIP LOCKED`, runner).Query(collectTries(&list))
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		b = &pgx.Batch{}
		if offered, err = s.takeBack(ctx, t, b, list, flow.TryLapsed, now); err != nil {
			return err
		}
		if n = len(list); n == 0 {
			return t.Rollback(ctx)
		}
		return t.Commit(ctx, b)
	})
	if err == nil && n > 0 {
		s.offered(offered)
		if s.Lapsed != nil {
			s.Lapsed(n)
		}
	}
	return n, err
}

// overdue ends tries whose time is over, and those whose runner was told to stop and did not.
func (s *Store) overdue(ctx context.Context) (n int, err error) {
	late, err := s.endOverdue(ctx, flow.TryTimedOut, overTimeSQL, flow.TimeoutGrace, ending{
		code: flow.CodeTimedOut,
		text: "its time was over, and its runner did not say how it ended",
	})
	if err != nil {
		return late, err
	}
	stopped, err := s.endOverdue(ctx, flow.TryStopOverdue, overStopSQL, flow.StopGrace, ending{
		code: flow.CodeStopped,
		text: "it was told to stop, and its runner did not say how it ended",
	})
	return late + stopped, err
}

// Tries whose time is over, or whose jobs were to stop: $1 is the clock of leases, $2 a grace.
const (
	overTimeSQL = `SELECT ` + tryColumns + `
		FROM postern.job_try t
		WHERE t.state = 'Held'
			AND t.deadline_at < coalesce($1::timestamptz, clock_timestamp()) - $2::interval
		ORDER BY t.deadline_at
		LIMIT 100
		FOR UPDATE OF t SKIP LOCKED`
	overStopSQL = `SELECT ` + tryColumns + `
		FROM postern.job j
		JOIN postern.job_try t ON t.job_id = j.job_id AND t.state = 'Held'
		JOIN postern.runner r ON r.runner_id = t.runner_id
		WHERE j.stop_at IS NOT NULL
			AND j.ended_at IS NULL
			AND j.stop_at + ` + patience + ` < coalesce($1::timestamptz, clock_timestamp()) - $2::interval
		LIMIT 100
		FOR UPDATE OF t SKIP LOCKED`
)

// endOverdue ends the tries that a query finds.
func (s *Store) endOverdue(
	ctx context.Context, on flow.TryEvent, which string, grace time.Duration, e ending,
) (n int, err error) {
	var queues []int64
	err = s.Run(ctx, func(t *db.Txn) error {
		queues = nil
		var list []*Try
		var now time.Time
		b := &pgx.Batch{}
		s.readLeaseNow(b, &now)
		b.Queue(which, s.LeaseNow(), grace).Query(collectTries(&list))
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if len(list) == 0 {
			return t.Rollback(ctx)
		}
		b = &pgx.Batch{}
		for _, v := range list {
			if _, err := s.move(b, v, on, e, now); err != nil {
				return err
			}
			queues = append(queues, v.queue)
		}
		return t.Commit(ctx, b)
	})
	if err == nil && len(queues) > 0 {
		s.hasten(ctx, queues...)
		s.ring()
	}
	return len(queues), err
}

// readLeaseNow adds to b a reading of the clock of leases.
func (s *Store) readLeaseNow(b *pgx.Batch, now *time.Time) {
	b.Queue(`SELECT coalesce($1::timestamptz, clock_timestamp())`, s.LeaseNow()).
		QueryRow(func(row pgx.Row) error { return row.Scan(now) })
}
