package reads

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// A head is stuck that has not moved for stuckAfter, or for twice the wait that its dispatcher configures for
// what it is doing, whichever is more; one that is overdue (see the view), or is held for an operator, is stuck at once.
// The sample holds the oldest stuckMost.
const stuckAfter, stuckMost = 10 * time.Minute, 200

// planByScan lets what reads tables whole do so in the order of their pages, and join them by hashes, which our
// connections leave out: a million queues are compared with what is ready in a second, instead of never.
const planByScan = `SELECT set_config('enable_seqscan', 'on', true), set_config('enable_hashjoin', 'on', true), set_config('work_mem', '64MB', true)`

// SampleStuck writes anew how many queues each node holds, and what report.stuck shows: heads that stand still, with the root of their blockers and a
// lever that would move it, as Why tells them: the last one with a lever, or the last one. It returns how many. It costs two scans of queue, from which idle
// queues go after a day, and locks nothing that others wait for.
func (s *Store) SampleStuck(ctx context.Context) (n int, err error) {
	now, err := s.Now(ctx)
	if err != nil {
		return 0, err
	}
	type candidate struct {
		queue   int64
		context int32
		now     bool // it is shown however long it has stood
	}
	var found []candidate
	b := &pgx.Batch{}
	b.Queue("BEGIN READ ONLY")
	b.Queue(planByScan)
	b.Queue(`WITH o AS MATERIALIZED (SELECT DISTINCT queue_id, context_id
			FROM (SELECT queue_id, context_id FROM postern.overdue
				UNION ALL SELECT q.queue_id, q.context_id FROM postern.mark m
				JOIN postern.queue q ON q.queue_id = m.queue_id AND q.cur_seq = m.seq
				WHERE m.kind = 'unknown') x LIMIT $2)
		(SELECT q.queue_id, q.context_id, false FROM postern.queue q
			LEFT JOIN postern.timer t ON t.queue_id = q.queue_id
			WHERE q.phase <> 'IDLE'
				AND (q.entered_at < $1 AND greatest(q.entered_at, t.due_at) < $1 OR q.blocked_since < $1)
				AND q.queue_id NOT IN (SELECT queue_id FROM o)
			ORDER BY least(q.entered_at, q.blocked_since) LIMIT $2)
		UNION ALL SELECT queue_id, context_id, true FROM o`, now.Add(-stuckAfter), stuckMost).
		Query(func(rows pgx.Rows) (err error) {
			found, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c candidate, err error) {
				return c, row.Scan(&c.queue, &c.context, &c.now)
			})
			return err
		})
	b.Queue("COMMIT")
	if err := s.Pool().SendBatch(ctx, b).Close(); err != nil {
		return 0, db.Known(err)
	}
	b = &pgx.Batch{}
	b.Queue("BEGIN")
	b.Queue("DELETE FROM postern.node_load")
	b.Queue(`INSERT INTO postern.node_load (node_id, queues, as_of) SELECT q.node_id, count(*), $1::timestamptz FROM postern.queue q
		WHERE q.node_id IS NOT NULL GROUP BY 1 ON CONFLICT ON CONSTRAINT one_load_per_node DO NOTHING`, now)
	b.Queue("DELETE FROM postern.stuck")
	for _, c := range found {
		x := &explain{s: s, ctx: ctx, context: c.context}
		if err := x.load(c.queue); err != nil && fault.KindOf(err) != fault.NotFound {
			return 0, err
		}
		if b := x.q.Blocked; x.head != nil && !b.IsZero() && b.Before(x.since) {
			x.since = b // a try that came to nothing is no move
		}
		if x.head == nil || !c.now && now.Sub(x.since) < patience(x.q.Phase, s.DispatcherOf(c.context, x.head.Type)) {
			continue
		}
		w, err := s.Why(ctx, c.context, x.head.ID)
		if err != nil || len(w.Blockers) == 0 {
			continue // it moved meanwhile
		}
		root := w.Blockers[len(w.Blockers)-1]
		for _, b := range w.Blockers {
			if len(b.Levers) > 0 {
				root = b
			}
		}
		var nextAt *time.Time
		var next, lever *string
		if root.Next != nil {
			nextAt, next = &root.Next.At, &root.Next.What
		}
		if len(root.Levers) > 0 {
			l := root.Levers[0].Method + " " + root.Levers[0].Path
			lever = &l
		}
		var by *string
		if id := root.Object; len(id) > len("/transactions/") && id[:len("/transactions/")] == "/transactions/" && id != pg.TxPath(x.head.ID) {
			if id, err := outbox.ParseID(id[len("/transactions/"):]); err == nil {
				text := id.String()
				by = &text
			}
		}
		uid := x.head.UID
		if uid == "" {
			uid = x.head.ID.String()
		}
		b.Queue(`INSERT INTO postern.stuck (queue_id, context_id, as_of, queue, id, uid, type, state, since, blocker, blocker_detail, blocked_by_id, next_at,
				next_action, lever) VALUES ($1, $2, $3, nullif($4, ''), $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
			ON CONFLICT ON CONSTRAINT one_row_per_stuck_queue DO NOTHING`,
			c.queue, c.context, now, x.name, x.head.ID.String(), uid, x.head.Type, w.State, x.since, root.Kind, root.Detail, by, nextAt, next, lever)
		n++
	}
	b.Queue("COMMIT")
	return n, db.Known(s.Pool().SendBatch(ctx, b).Close())
}

// patience is how long a head may stay in a phase before it is called stuck; d may be nil.
func patience(phase outbox.Phase, d *pg.Dispatcher) time.Duration {
	wait := outbox.Duration(0)
	switch {
	case d == nil:
	case phase == outbox.PhaseDispatching:
		wait = d.Timeouts.Dispatch
	case phase == outbox.PhaseInclusion, phase == outbox.PhaseWaitingInclusion:
		wait = d.Inclusion.Deadline
	case phase == outbox.PhaseRetry, phase == outbox.PhaseDelay:
		wait = d.Retry.Cap
	}
	return max(stuckAfter, 2*time.Duration(wait))
}
