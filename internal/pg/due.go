package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// DueProcessor is one that has something to do.
type DueProcessor struct {
	Context int32
	Name    string
}

// One look at all processors: by the index of their key, and of each the two rows of its lines and what it executes, or
// waits for, by the partial indexes. An execution is due when its transaction has ended, or, after a second, when there
// is none: whoever ticked is still posting it, or died.
const dueSQL = `SELECT p.context_id, p.name, d.tick OR d.moved
	FROM postern.processor p CROSS JOIN (SELECT coalesce($1::timestamptz, clock_timestamp())) n(now)
	LEFT JOIN LATERAL (SELECT b.batch_id, b.run, b.updated_at FROM postern.batch b WHERE b.processor_id = p.processor_id AND b.state = 'Executing') x ON true
	CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM postern.batch_line l WHERE l.processor_id = p.processor_id AND l.length > 0) AS line,
		EXISTS (SELECT FROM postern.batch b WHERE b.processor_id = p.processor_id AND b.state = 'Waiting_Callback') AS waits) w
	CROSS JOIN LATERAL (SELECT NOT p.paused AND p.tick_interval > '0' AND x.batch_id IS NULL AND w.line
			AND coalesce(p.ticked_at + p.tick_interval <= n.now, true) AS tick,
		x.batch_id IS NOT NULL AND coalesce((SELECT o.queue_id IS NOT NULL FROM postern.idempotency i LEFT JOIN postern.outcome o USING (queue_id, seq, day)
				WHERE i.context_id = p.context_id AND i.key = ':processor:' || x.batch_id || ':' || x.run), x.updated_at + interval '1 s' <= n.now)
			OR w.waits AND EXISTS (SELECT FROM postern.batch b JOIN postern.batch_callback c USING (batch_id)
				WHERE b.processor_id = p.processor_id AND b.state = 'Waiting_Callback' AND (c.deadline < n.now OR b.expiration_time < n.now)) AS moved) d
	WHERE p.removed_at IS NULL AND (x.batch_id IS NOT NULL OR w.line OR w.waits)`

// ProcessorsDue lists the processors that have something to do now, and says how many have batches that have not ended.
func (s *Store) ProcessorsDue(ctx context.Context) (due []DueProcessor, busy int, err error) {
	rows, err := s.db(ctx).Query(ctx, dueSQL, s.now())
	if err != nil {
		return nil, 0, known(err)
	}
	var p DueProcessor
	var now bool
	_, err = pgx.ForEachRow(rows, []any{&p.Context, &p.Name, &now}, func() error {
		busy++
		if now {
			due = append(due, p)
		}
		return nil
	})
	return due, busy, known(err)
}
