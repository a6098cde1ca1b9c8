package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// QueuesAbout is how many rows the hot table had when PostgreSQL last counted; 0 if it has not.
func (s *Store) QueuesAbout(ctx context.Context) (n int, err error) {
	err = s.Pool().QueryRow(ctx, `SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = 'postern.queue'::regclass`).Scan(&n)
	return n, db.Known(err)
}

// Reap removes the hot rows of idle queues that were not used since before, after it has copied their tail and fence
// to their names: so many in one commit, and then it rests. A queue that is configured stays. Reap takes the name
// first, as a post that revives a queue does, and skips what is locked, so it never waits; a post that comes
// meanwhile finds the name locked and waits for this short transaction, or finds the row gone and revives it from the
// name.
func (s *Store) Reap(ctx context.Context, before time.Time, atOnce int) (total int, err error) {
	for from := int64(0); from >= 0; {
		began := time.Now()
		n, last, err := s.reapFrom(ctx, before, from, atOnce)
		if total += n; err != nil {
			return total, err
		}
		if from = last; last >= 0 {
			if err := Rest(ctx, time.Since(began)); err != nil {
				return total, err
			}
		}
	}
	return total, nil
}

// reapFrom takes those behind a queue, in the order of their ids, so that nothing is looked at twice; last is where it
// goes on, -1 at the end.
func (s *Store) reapFrom(ctx context.Context, before time.Time, from int64, atOnce int) (n int, last int64, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		var ids []int64
		b := &pgx.Batch{}
		b.Queue(`SELECT n.queue_id FROM postern.queue q JOIN postern.queue_name n ON n.queue_id = q.queue_id
			WHERE q.queue_id > $3 AND q.phase = 'IDLE' AND q.named AND NOT q.paused AND NOT q.draining AND q.entered_at < $1 AND NOT n.configured
			ORDER BY q.queue_id LIMIT $2 FOR UPDATE OF n SKIP LOCKED`, before, atOnce, from).
			Query(func(r pgx.Rows) (err error) {
				ids, err = pgx.CollectRows(r, pgx.RowTo[int64])
				return err
			})
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if last = -1; len(ids) == atOnce {
			last = ids[atOnce-1]
		}
		rows := map[int64]*QueueRow{}
		b = &pgx.Batch{}
		lockQueues(b, lockSkipping, ids, nil, rows)
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		var gone, tails, fences []int64
		var days []time.Time
		for id, q := range rows {
			if q.Phase == outbox.PhaseIdle && q.EnteredAt.Before(before) && !q.Paused && !q.Draining {
				gone, tails, fences, days = append(gone, id), append(tails, q.Tail), append(fences, q.Fence), append(days, q.TailDay.Time())
			}
		}
		if n = len(gone); n == 0 {
			return t.Rollback(ctx)
		}
		b = &pgx.Batch{}
		b.Queue(`UPDATE postern.queue_name n SET last_seq = g.seq, last_fence = g.fence, last_day = g.day
			FROM ROWS FROM (unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::date[])) g(queue_id, seq, fence, day)
			WHERE n.queue_id = g.queue_id`, gone, tails, fences, days)
		b.Queue(`DELETE FROM postern.queue WHERE queue_id = ANY ($1)`, gone)
		return t.Commit(ctx, b)
	})
	return n, last, err
}

// Relane moves queues that stand in lanes which no longer fit their head's dispatcher (its pool or
// exclusiveness has changed) and returns how many. A process that did not know of the change yet may
// have put them there, so it is repeated. Lanes without ready queues are not looked at: of an
// exclusive type there is one for each value that its field ever had. Of those that fit no queue is read.
func (s *Store) Relane(ctx context.Context) (n int, err error) {
	rows, err := s.Pool().Query(ctx, `WITH RECURSIVE w(lane) AS (
		SELECT (SELECT r.lane FROM postern.ready r ORDER BY r.lane LIMIT 1)
		UNION ALL
		SELECT (SELECT r.lane FROM postern.ready r WHERE r.lane > w.lane ORDER BY r.lane LIMIT 1)
		FROM w WHERE lane IS NOT NULL),
		other AS MATERIALIZED (SELECT * FROM (SELECT l.lane_id, l.pool_id, (l.kind = 'exclusive') <> (coalesce(d.settings->>'exclusive', 'none') NOT IN ('', 'none'))
				OR l.kind = 'exclusive' AND CASE
					WHEN d.settings->>'exclusive' = 'type' THEN l.value <> ''
					WHEN jsonb_typeof(d.settings->'exclusive') = 'object' THEN NOT starts_with(l.value,
						concat(d.settings->'exclusive'->>'group', d.settings->'exclusive'->>'by', ' '))
					ELSE NOT starts_with(l.value, substr(d.settings->>'exclusive', length('field:') + 1) || ' ') END
				OR l.kind = 'dispatcher' AND (l.pool_id IS NULL) <> (d.pool_id IS NULL) AS whole, l.kind = 'dispatcher' AND l.pool_id <> d.pool_id AS pool
			FROM w JOIN postern.lane l ON l.lane_id = w.lane
			JOIN postern.dispatcher d ON d.dispatcher_id = l.dispatcher_id) l WHERE whole OR pool)
		SELECT DISTINCT r.queue_id FROM other l CROSS JOIN LATERAL (SELECT r.queue_id FROM postern.ready r WHERE r.lane = l.lane_id
			AND (l.whole OR NOT EXISTS (SELECT FROM postern.queue q WHERE q.queue_id = r.queue_id AND q.pool_id = l.pool_id OFFSET 0)) LIMIT 1000) r LIMIT 1000`)
	if err != nil {
		return 0, db.Known(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return 0, db.Known(err)
	}
	for _, id := range ids {
		err := s.Run(ctx, func(t *db.Txn) error {
			q, now, err := s.lockOne(ctx, t, id)
			if err != nil || q == nil || q.Phase != outbox.PhaseReady {
				return err
			}
			e := newEffects(s)
			e.now = now
			e.leave(q)
			if err := s.relane(ctx, t, e, q); err != nil {
				return err
			}
			e.saved = append(e.saved, q)
			return e.commit(ctx, t, &pgx.Batch{})
		})
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// Forget removes the rows of nodes that have been dead for a day and own nothing any more, as Release has found.
func (s *Store) Forget(ctx context.Context) error {
	_, err := s.Exec(ctx, `DELETE FROM postern.node WHERE released_epoch = epoch AND dead_at < coalesce($1::timestamptz, clock_timestamp()) - interval '1 day'`, s.LeaseNow())
	return err
}
