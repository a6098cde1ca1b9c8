package reads

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/sequencer"
)

// A head is stuck that has not moved for stuckAfter, or for twice the wait that its dispatcher configures for
// what it is doing, whichever is more. A head is stuck at once by a cause that time alone does not end: it is overdue
// (see the view), is held for an operator, or waits for a worker that is away, whose answer came to nothing, or that
// does not say what came of a call (byCause). The sample holds the oldest stuckMost, and of those that wait for a
// worker the oldest awayMost, so that they leave room for the others.
const stuckAfter, stuckMost, awayMost = 10 * time.Minute, 200, 100

// byCause are the blockers by which a head is stuck as soon as it stands for lateBy.
var byCause = []string{
	"worker_unreachable",
	"queue_blocked",
	"status_unreachable",
	"outcome_unknown",
}

// planByScan lets what reads tables whole do so in the order of their pages, and join them by hashes, which our
// connections leave out: a million queues are compared with what is ready in a second, instead of never.
const planByScan = `SELECT set_config('enable_seqscan', 'on', true), set_config('enable_hashjoin', 'on', true), set_config('work_mem', '64MB', true)`

// SampleStuck writes anew how many queues each node holds, and what report.stuck shows: heads that stand still,
// with the root of their blockers and a lever that would move it, as Why tells them: the last one with a lever,
// or the last one. They are old since they first were head: no probe, and no attempt, begins that anew. It
// returns how many. It costs two scans of queue, from which idle queues go after a day, and locks nothing that
// others wait for.
func (s *Store) SampleStuck(ctx context.Context) (n int, err error) {
	now, err := s.Now(ctx)
	if err != nil {
		return 0, err
	}
	found, err := s.mayBeStuck(ctx, now)
	if err != nil {
		return 0, err
	}
	b := &pgx.Batch{}
	b.Queue("BEGIN")
	b.Queue("DELETE FROM postern.node_load")
	b.Queue(`INSERT INTO postern.node_load (node_id, queues, as_of) SELECT q.node_id, count(*), $1::timestamptz FROM postern.queue q
		WHERE q.node_id IS NOT NULL GROUP BY 1 ON CONFLICT ON CONSTRAINT one_load_per_node DO NOTHING`, now)
	b.Queue("DELETE FROM postern.stuck")
	for _, c := range found {
		row, err := s.standing(ctx, c, now)
		if err != nil {
			return 0, err
		}
		if row != nil {
			row.queue(b, now)
			n++
		}
	}
	b.Queue("COMMIT")
	return n, db.Known(s.Pool().SendBatch(ctx, b).Close())
}

// candidate is a queue that may be stuck.
type candidate struct {
	queue   int64
	context int32
	now     bool // it is shown however long it has stood
	away    bool // it waits for a worker, or its call came to nothing
}

// mayBeStuck lists the queues that are overdue or held, those whose worker is away, whose call came to nothing, or
// whose worker was asked what came of one and gave no answer that can be read, and those that have been in their phase
// for long, or whose head was tried before. The timer of what is asked about is always ahead: it says nothing of its
// age.
func (s *Store) mayBeStuck(ctx context.Context, now time.Time) (found []candidate, err error) {
	b := &pgx.Batch{}
	b.Queue("BEGIN READ ONLY")
	b.Queue(planByScan)
	b.Queue(`
		WITH sure AS MATERIALIZED (
			SELECT DISTINCT queue_id, context_id
			FROM (SELECT queue_id, context_id FROM postern.overdue
				UNION ALL SELECT q.queue_id, q.context_id FROM postern.mark m
				JOIN postern.queue q ON q.queue_id = m.queue_id AND q.cur_seq = m.seq
				WHERE m.kind = 'unknown') x
			LIMIT $2),
		gated AS MATERIALIZED (SELECT sender_id, pool_id FROM postern.sender
			WHERE block_reason = 'worker_unreachable' AND removed_at IS NULL),
		stands AS MATERIALIZED (SELECT * FROM (
			SELECT q.queue_id, q.context_id, least(q.entered_at, q.blocked_since) AS at,
				q.blocked_since IS NOT NULL
					OR q.phase = 'DISPATCHING' AND q.node_id IS NULL AND t.said <> $4
					OR l.dispatcher_id IN (SELECT dispatcher_id FROM postern.dispatcher
						WHERE gate_failures > 0 AND removed_at IS NULL)
					OR coalesce(q.sender_id, q.pin_sender_id) IN (SELECT sender_id FROM gated)
					OR l.pool_id IN (SELECT pool_id FROM gated) AS away,
				q.entered_at < $1 AND (greatest(q.entered_at, t.due_at) < $1
					OR t.said <> '' AND q.phase IN ('DISPATCHING', 'INCLUSION', 'WAITING_INCLUSION'))
					OR q.attempt > 1 AS old
			FROM postern.queue q
			LEFT JOIN postern.lane l ON l.lane_id = q.lane
			LEFT JOIN postern.timer t ON t.queue_id = q.queue_id
			WHERE q.phase <> 'IDLE' AND q.queue_id NOT IN (SELECT queue_id FROM sure)) q
			WHERE away OR old)
		SELECT queue_id, context_id, true, false FROM sure
		UNION ALL (SELECT queue_id, context_id, false, true FROM stands WHERE away ORDER BY at LIMIT $3)
		UNION ALL (SELECT queue_id, context_id, false, false FROM stands
			WHERE away IS NOT TRUE ORDER BY at LIMIT $2)`,
		now.Add(-stuckAfter), stuckMost, awayMost, sequencer.AtWork).
		Query(func(rows pgx.Rows) (err error) {
			found, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c candidate, err error) {
				return c, row.Scan(&c.queue, &c.context, &c.now, &c.away)
			})
			return err
		})
	b.Queue("COMMIT")
	return found, db.Known(s.Pool().SendBatch(ctx, b).Close())
}

// stuckRow is a head that stands.
type stuckRow struct {
	x     *explain
	why   *Why
	since time.Time
	code  string // of what was heard last of its calls
}

// standing explains the head of a queue that may be stuck; nil: it is not, or has moved meanwhile.
func (s *Store) standing(ctx context.Context, c candidate, now time.Time) (*stuckRow, error) {
	x := &explain{s: s, ctx: ctx, context: c.context}
	if err := x.load(c.queue); err != nil && fault.KindOf(err) != fault.NotFound {
		return nil, err
	}
	if x.head == nil {
		return nil, nil
	}
	since, err := x.headSince()
	if err != nil {
		return nil, err
	}
	unread := x.said != "" && x.said != sequencer.AtWork // its worker does not say what came of it
	long := c.now || unread && now.Sub(x.since) >= stuckAfter ||
		now.Sub(since) >= patience(x.q.Phase, s.DispatcherOf(c.context, x.head.Type))
	if !long && (!c.away || now.Sub(since) < lateBy) {
		return nil, nil
	}
	w, err := s.Why(ctx, c.context, x.head.ID)
	if err != nil || len(w.Blockers) == 0 {
		return nil, nil // it moved meanwhile
	}
	atWork := x.said == sequencer.AtWork
	if !long && !slices.ContainsFunc(w.Blockers, func(b Blocker) bool {
		return slices.Contains(byCause, b.Kind) && (b.Kind != "outcome_unknown" || !atWork)
	}) {
		return nil, nil
	}
	r := &stuckRow{x: x, why: w, since: since}
	id := x.head.ID
	err = s.Pool().QueryRow(ctx, `
		SELECT coalesce(code, '')
		FROM postern.attempt
		WHERE (queue_id, seq, day) = ($1, $2, $3) AND step <> 'late'
		ORDER BY attempt DESC, answered_at DESC
		LIMIT 1`, id.Queue, id.Seq, id.Day.Time()).Scan(&r.code)
	if err != nil && !db.IsNoRows(err) {
		return nil, db.Known(err)
	}
	return r, nil
}

// group is what heads have in common that stand for one cause: the object in their way, where others may have the same,
// or the transaction in their way; else what was heard last of their calls, and whether anything happens by itself, as
// with those that are asked about, and not with those that are held for an operator.
func (r *stuckRow) group(root Blocker, object string, by *string) string {
	switch {
	case object != "":
		return object
	case by != nil:
		return "/transactions/" + *by
	case root.Next == nil:
		return "by hand " + r.code
	}
	return r.code
}

// headSince is when the head first was that: when it was posted, or the one before it ended. One that was moved
// within its queue, or to another one, is old since it came into its phase.
func (x *explain) headSince() (at time.Time, err error) {
	if x.q.Marks > 0 && x.head.ID.Seq != x.q.Head {
		return x.since, nil
	}
	err = x.s.Pool().QueryRow(x.ctx, `
		SELECT greatest($3::timestamptz, (SELECT max(done_at) FROM postern.outcome WHERE queue_id = $1 AND seq = $2))`,
		x.head.ID.Queue, x.head.ID.Seq-1, x.head.CreatedAt).Scan(&at)
	if at.After(x.since) {
		at = x.since
	}
	return at, db.Known(err)
}

// root is what the row names: the last blocker with a lever that changes something, or the last one.
func (r *stuckRow) root() (root Blocker, lever *string) {
	root = r.why.Blockers[len(r.why.Blockers)-1]
	for _, b := range r.why.Blockers {
		for _, l := range b.Levers {
			if !l.looks() {
				text := l.String()
				root, lever = b, &text
				break
			}
		}
	}
	return root, lever
}

// queue adds the row to a batch.
func (r *stuckRow) queue(b *pgx.Batch, now time.Time) {
	x := r.x
	root, lever := r.root()
	var nextAt *time.Time
	var next, by *string
	if root.Next != nil {
		nextAt, next = &root.Next.At, &root.Next.What
	}
	object := root.Object
	if id, ok := strings.CutPrefix(object, "/transactions/"); ok {
		if object = ""; root.Object != pg.TxPath(x.head.ID) {
			if id, err := outbox.ParseID(id); err == nil {
				text := id.String()
				by = &text
			}
		}
	}
	b.Queue(`INSERT INTO postern.stuck (queue_id, context_id, as_of, queue, id, uid, type, state, since, blocker, object,
			blocker_detail, blocked_by_id, next_at, next_action, lever, alike)
		VALUES ($1, $2, $3, nullif($4, ''), $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
		ON CONFLICT ON CONSTRAINT one_row_per_stuck_queue DO NOTHING`,
		x.q.ID, x.context, now, x.name, x.head.ID.String(), cmp.Or(x.head.UID, x.head.ID.String()), x.head.Type,
		r.why.State, r.since, root.Kind, object, root.Detail, by, nextAt, next, lever, r.group(root, object, by))
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
		wait = outbox.Duration(d.Backoff().Longest(math.MaxInt))
	}
	return max(stuckAfter, 2*time.Duration(wait))
}
