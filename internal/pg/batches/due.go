package batches

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg/db"
)

// DueProcessor is one that has something to do.
type DueProcessor struct {
	Context int32
	Name    string
	Advance bool // it needs more than a tick, which ends what it executes if the transaction has ended
}

// dueSQL reads for every processor the batch that it executes, or else whether a batch stands in its lines, and the
// batches that wait for a callback or to be sent again: each by one read of an index, null where there is none. An
// execution is due when its transaction has ended, or, after a second, when there is none: the process that ticked is
// still posting it, or died. (OFFSET 0: each is computed once, and not again where it is used.)
const dueSQL = `SELECT p.context_id, p.name, coalesce(d.due, false) OR coalesce(d.overdue, false),
		coalesce(d.overdue, false) OR x.batch_id IS NOT NULL AND NOT coalesce(e.ended, false)
	FROM postern.processor p CROSS JOIN (SELECT coalesce($1::timestamptz, clock_timestamp())) n(now)
	LEFT JOIN LATERAL (SELECT b.batch_id, b.run, b.updated_at, b.delivered, b.deliver_as FROM postern.batch b WHERE b.processor_id = p.processor_id AND b.state = 'Executing' OFFSET 0) x ON true
	LEFT JOIN LATERAL (SELECT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq, o.day) = (i.queue_id, i.seq, i.day) OFFSET 0) AS ended, ` + lateSQL + ` AS late
		FROM postern.idempotency i WHERE x.batch_id IS NOT NULL AND i.context_id = p.context_id AND i.key = ':processor:' || x.batch_id || ':' || x.run OFFSET 0) e ON true
	CROSS JOIN LATERAL (SELECT CASE
			WHEN x.batch_id IS NOT NULL THEN coalesce(e.ended OR e.late, x.updated_at + interval '1 s' <= n.now)
			WHEN EXISTS (SELECT FROM postern.batch_line l WHERE l.processor_id = p.processor_id AND l.length > 0 OFFSET 0)
				THEN NOT p.paused AND p.tick_interval > '0' AND coalesce(p.ticked_at + p.tick_interval <= n.now, true) END AS due,
		(SELECT bool_or(w.over) FROM (SELECT c.deadline < n.now OR coalesce(b.expiration_time < n.now, false) AS over FROM postern.batch b JOIN postern.batch_callback c USING (batch_id)
				WHERE b.processor_id = p.processor_id AND b.state = 'Waiting_Callback'
			UNION ALL SELECT b.ttl <= n.now FROM postern.batch b WHERE b.processor_id = p.processor_id AND b.state = 'Timed_Out') w) AS overdue OFFSET 0) d
	WHERE p.removed_at IS NULL AND (d.due IS NOT NULL OR d.overdue IS NOT NULL)`

// ProcessorsDue lists the processors that have something to do now and are not in quarantine, and says how many have
// batches that have not ended.
func (s *Store) ProcessorsDue(ctx context.Context) (due []DueProcessor, busy int, err error) {
	rows, err := s.Looks.Query(ctx, dueSQL, s.Clock())
	if err != nil {
		return nil, 0, db.Known(err)
	}
	var p DueProcessor
	var now bool
	_, err = pgx.ForEachRow(rows, []any{&p.Context, &p.Name, &now, &p.Advance}, func() error {
		busy++
		if now && !s.Quarantined(p.Context, "") {
			due = append(due, p)
		}
		return nil
	})
	return due, busy, db.Known(err)
}
