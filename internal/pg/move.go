package pg

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Place is where a transaction is to stand among those of its queue: right before or after another one, or, without
// either, first of all that wait.
type Place struct{ Before, After *outbox.ID }

// Move changes when a waiting transaction goes out, within its queue (S2.4). Its position, which is the order of
// arrival and part of its id, stays; a mark gives it a rank between its new neighbours, whose ranks are their
// positions or their own marks. Changed is false if it stands there already. Outcomes: Conflict "wrong_state" if it
// does not wait, has been out before, or would go ahead of one that is or has been out; "dependency_cycle" (Invalid)
// if two would wait for each other then; Invalid for a place that is none.
//
// Why the transaction in flight keeps its turn: it has the lowest rank (it went out as the lowest, and nothing is
// placed below it since). So it still goes first when its worker was away and it waits again. Why no transaction is
// called twice or left out: ranks are read and written under the lock of the queue. Under the same lock claim and
// settle decide which one goes out, and the next one is in the row.
func (s *Store) Move(ctx context.Context, by db.By, id outbox.ID, to Place) (r LeverResult, err error) {
	return s.moveAs(ctx, by, id, to, "move", TxPath(id))
}

// moveAs is Move with the action and the object that the audit row names.
func (s *Store) moveAs(ctx context.Context, by db.By, id outbox.ID, to Place, action, object string) (r LeverResult, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		r = LeverResult{}
		h, err := s.hold(ctx, t, by, "move", id)
		if err != nil {
			return err
		}
		m := &move{inHand: h, id: id, to: to}
		if err := m.find(ctx, t); err != nil {
			return err
		}
		b := &pgx.Batch{}
		if action != "" {
			s.AuditIn(b, by, action, object)
		}
		if r.Changed = !m.there; m.there {
			return h.e.commit(ctx, t, b)
		}
		if err := m.waits(ctx, t); err != nil {
			return err
		}
		if !m.placed {
			h.q.Marks++
		}
		b.Queue(`INSERT INTO postern.mark (queue_id, seq, kind, reason, actor, at, rank, before_seq) VALUES ($1, $2, 'placed', $3, $4, $5, $6::text::numeric, $7)
			ON CONFLICT (queue_id, seq, kind) DO UPDATE SET reason = excluded.reason, actor = excluded.actor, at = excluded.at, rank = excluded.rank,
				before_seq = excluded.before_seq`, id.Queue, id.Seq, by.Reason, by.Actor, h.e.now, m.rank, db.Nullable(m.before))
		if h.q.Cur == 0 {
			var next *Task
			nextUnsettled(b, h.q, nil, func(t *Task) { next = t })
			if err := t.Send(ctx, b); err != nil {
				return err
			}
			b = &pgx.Batch{}
			if next.ID.Seq != h.q.First() {
				h.e.leave(h.q)
				if err := h.e.rest(h.q, next, true); err != nil {
					return err
				}
			}
		}
		h.e.save(h.q)
		return h.e.commit(ctx, t, b)
	})
	return r, err
}

// move is one decision.
type move struct {
	*inHand
	id     outbox.ID
	to     Place
	placed bool   // it was moved before
	there  bool   // it stands where it should
	rank   string // a decimal number: its new place
	before int64  // the position behind it, 0 at the end
	ahead  bool   // it is to go out earlier than now
}

// OpenSQL is what of a queue has not ended, with the rank in which it goes out.
const OpenSQL = `SELECT t.seq, t.day, postern.salt(t.created_at, t.moved_from) AS salt, coalesce(p.rank, t.seq) AS rank, p.rank IS NOT NULL AS placed, coalesce(t.sender_id, 0) AS pin FROM postern.task t
	LEFT JOIN postern.mark p ON (p.queue_id, p.seq, p.kind) = (t.queue_id, t.seq, 'placed')
	WHERE t.queue_id = $1 AND t.seq >= $2 AND t.day >= $3
		AND NOT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq, o.day) = (t.queue_id, t.seq, t.day))`

// placeSQL finds the ranks between which one ($4) is to stand: that of its anchor ($5, or 0 for the first of the
// queue) and of the anchor's neighbour before, or behind it ($6). Each neighbour costs one search in the key of
// tasks, for those that go by their position, and one in the marks of the queue, for those that do not.
const placeSQL = `WITH me AS (SELECT coalesce(p.rank, $4::bigint) AS rank, p.rank IS NOT NULL AS placed FROM (VALUES (1)) v
			LEFT JOIN postern.mark p ON (p.queue_id, p.seq, p.kind) = ($1, $4::bigint, 'placed')),
		placed AS MATERIALIZED (SELECT p.seq, p.rank FROM postern.mark p WHERE p.queue_id = $1 AND p.kind = 'placed' AND p.seq >= $2 AND p.seq <> $4
			AND EXISTS (SELECT FROM postern.task t WHERE t.queue_id = $1 AND t.seq = p.seq AND t.day >= $3
				AND NOT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq, o.day) = (t.queue_id, t.seq, t.day)))),
		anchor AS (SELECT n.seq, n.rank FROM (` + neighbourSQL + ` AND ($5::bigint = 0 OR t.seq = $5) ORDER BY t.seq LIMIT 1)
			UNION ALL SELECT p.seq, p.rank FROM placed p WHERE $5 = 0 OR p.seq = $5) n ORDER BY n.rank LIMIT 1),
		lower AS (SELECT max(n.rank) AS rank FROM anchor a CROSS JOIN LATERAL (` + neighbourSQL + ` AND t.seq < ceil(a.rank)::bigint ORDER BY t.seq DESC LIMIT 1)
			UNION ALL SELECT p.seq, p.rank FROM placed p WHERE p.rank < a.rank) n),
		upper AS (SELECT min(n.rank) AS rank FROM anchor a CROSS JOIN LATERAL (` + neighbourSQL + ` AND t.seq > floor(a.rank)::bigint ORDER BY t.seq LIMIT 1)
			UNION ALL SELECT p.seq, p.rank FROM placed p WHERE p.rank > a.rank) n),
		bounds AS (SELECT CASE WHEN $6 THEN a.rank ELSE l.rank END AS lo, CASE WHEN $6 THEN u.rank ELSE a.rank END AS hi FROM anchor a, lower l, upper u)
	SELECT me.placed, coalesce(me.rank > b.lo, true) AND coalesce(me.rank < b.hi, true),
		trim_scale(CASE WHEN b.lo IS NULL THEN b.hi - 1 ELSE (b.lo + coalesce(b.hi, $7)) * 0.5 END)::text,
		coalesce((SELECT p.seq FROM placed p WHERE p.rank = b.hi), b.hi::bigint, 0), coalesce(me.rank > coalesce(b.hi, $7), false)
	FROM bounds b CROSS JOIN me`

// aboutIt names the field that a refusal is about; other errors stay as they are.
func aboutIt(pointer string, err error) error {
	if f := (*fault.Error)(nil); errors.As(err, &f) && f.Kind != fault.Internal && len(f.Fields) == 0 {
		return f.About(pointer)
	}
	return err
}

// neighbourSQL begins the look at those that go by their position.
const neighbourSQL = `(SELECT t.seq, t.seq::numeric AS rank FROM postern.task t WHERE t.queue_id = $1 AND t.seq >= $2 AND t.day >= $3 AND t.seq <> $4
			AND NOT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq, o.day) = (t.queue_id, t.seq, t.day))
			AND NOT EXISTS (SELECT FROM postern.mark p WHERE (p.queue_id, p.seq, p.kind) = (t.queue_id, t.seq, 'placed'))`

// find refuses what cannot be done, and finds the rank of the new place. Ranks are decimals of any length, so that
// there is always one between two.
func (m *move) find(ctx context.Context, t *db.Txn) error {
	q := m.q
	switch {
	case m.state.Terminal():
		return fault.New(fault.Conflict, "wrong_state", "transaction %s is %s already", m.id, m.state)
	case m.state != outbox.WAITING:
		return fault.New(fault.Conflict, "wrong_state", "transaction %s is %s: only what waits can be moved", m.id, m.state)
	case !q.Named:
		return fault.New(fault.Conflict, "wrong_state", "transaction %s is unordered: it has no place in a queue", m.id)
	}
	anchor, pointer := m.to.Before, "/place/before"
	if anchor == nil {
		anchor, pointer = m.to.After, "/place/after"
	}
	if anchor != nil && (anchor.Queue != m.id.Queue || *anchor == m.id) {
		return fault.At(pointer, "%s is not another transaction of the same queue", anchor)
	}
	out, err := q.out(ctx, t)
	if err != nil {
		return err
	}
	if out == m.id.Seq {
		return fault.New(fault.Conflict, "wrong_state", "transaction %s has been out before: it keeps its turn", m.id)
	}
	seq := int64(0)
	switch {
	case m.to.Before != nil && m.to.Before.Seq == out:
		return fault.New(fault.Conflict, "wrong_state", "transaction %s is or has been out: nothing goes ahead of it", m.to.Before).
			About(pointer)
	case anchor != nil:
		seq = anchor.Seq
	case out != 0: // first of what waits is right behind it
		seq, m.to.After = out, &outbox.ID{}
	}
	if anchor != nil {
		if err := isThere(ctx, t, *anchor); err != nil {
			return aboutIt(pointer, err)
		}
	}
	// lo and hi are the ranks between which it is to stand: of its anchor, and of the anchor's neighbour on that side.
	b := &pgx.Batch{}
	found := false
	b.Queue(placeSQL, q.ID, q.Head, q.HeadDay.Time(), m.id.Seq, seq, m.to.After != nil, q.Tail+1).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&m.placed, &m.there, &m.rank, &m.before, &m.ahead}, func() error { found = true; return nil })
		return err
	})
	if err := t.Send(ctx, b); err != nil {
		return err
	}
	switch {
	case !found && anchor == nil: // it is alone
		m.there = true
	case !found:
		return aboutIt(pointer, notWaiting(*anchor))
	case len(m.rank) > 10000: // far below what numeric can hold
		return fault.New(fault.Conflict, "wrong_state", "there is no room left at this place: cancel %s and post it again", m.id)
	}
	return nil
}

// isThere refuses an anchor whose position exists under another salt: its id is of a time that was lost.
func isThere(ctx context.Context, t *db.Txn, id outbox.ID) error {
	there := false
	b := &pgx.Batch{}
	b.Queue(`SELECT EXISTS (SELECT FROM postern.task t WHERE (t.queue_id, t.seq, t.day) = ($1, $2, $3) AND postern.salt(t.created_at, t.moved_from) = $4)`,
		id.Queue, id.Seq, id.Day.Time(), id.Salt).QueryRow(func(row pgx.Row) error { return row.Scan(&there) })
	if err := t.Send(ctx, b); err != nil || there {
		return err
	}
	return notWaiting(id)
}

func notWaiting(id outbox.ID) error {
	return fault.New(fault.Conflict, "wrong_state", "transaction %s does not wait in this queue: name one that does", id)
}

// out is the position that goes first whatever happens, since it is in flight or has been; 0 = none.
func (q *QueueRow) out(ctx context.Context, t *db.Txn) (int64, error) {
	if q.Cur != 0 || q.Phase == outbox.PhaseIdle {
		return q.Cur, nil
	}
	tried := false
	b := &pgx.Batch{}
	b.Queue(`SELECT coalesce(t.sender_id, 0) <> $3
			OR EXISTS (SELECT FROM postern.attempt a
				WHERE (a.queue_id, a.seq, a.day) = (t.queue_id, t.seq, t.day) AND a.nothing_done IS NOT TRUE)
		FROM postern.task t WHERE t.queue_id = $1 AND t.seq = $2 AND t.day >= $4`, q.ID, q.First(), q.Pin, q.HeadDay.Time()).
		QueryRow(func(row pgx.Row) error { return row.Scan(&tried) })
	if err := t.Send(ctx, b); err != nil || !tried && q.Attempt == 1 && q.Retries == 0 {
		return 0, err
	}
	return q.First(), nil
}

// waitsAtMost bounds the walk along dependencies.
const waitsAtMost = 10000

// waits refuses a move after which two transactions would wait for each other for ever. Of two that change sides, A
// goes out first and B later: B waits for A in the queue, so A must not wait for B by its dependencies.
//
// Only dependencies lead back: a transaction that stood before both stands before both, and one that waits for B
// waited for it already.
func (m *move) waits(ctx context.Context, t *db.Txn) error {
	depends := false
	b := &pgx.Batch{}
	b.Queue(`SELECT EXISTS (SELECT FROM postern.mark m WHERE m.queue_id = $1 AND m.seq >= $2 AND m.kind IN ('held', 'watched'))`, m.q.ID, m.q.Head).
		QueryRow(func(row pgx.Row) error { return row.Scan(&depends) })
	if m.q.Marks == 0 {
		return nil
	} else if err := t.Send(ctx, b); err != nil || !depends {
		return err // no transaction of this context has a dependency
	}
	var from, to []position
	b = &pgx.Batch{}
	b.Queue(`WITH open AS MATERIALIZED (`+OpenSQL+`)
		SELECT o.seq FROM open o JOIN open me ON me.seq = $4
		WHERE o.seq <> $4 AND CASE WHEN $6 THEN o.rank > $5::text::numeric AND o.rank < me.rank ELSE o.rank < $5::text::numeric AND o.rank > me.rank END`,
		m.q.ID, m.q.Head, m.q.HeadDay.Time(), m.id.Seq, m.rank, m.ahead).Query(func(rows pgx.Rows) error {
		var seq int64
		_, err := pgx.ForEachRow(rows, []any{&seq}, func() error { to = append(to, position{m.q.ID, seq}); return nil })
		return err
	})
	if err := t.Send(ctx, b); err != nil {
		return err
	}
	if from = []position{positionOf(m.id)}; !m.ahead {
		from, to = to, from
	}
	if err := lockMoves(ctx, t, m.q.Context); err != nil {
		return err
	}
	met, done, err := dependsOn(ctx, t, from, to, m.q.ID)
	if err == nil && (met != nil || !done) {
		err = fault.New(fault.Invalid, "dependency_cycle", "%s", m.circle(met)).About("/place")
	}
	return err
}

// lockMoves lets moves in a context with dependencies go one after the other. So two at once, each sound alone,
// cannot close a circle over two queues: the second one reads what the first has committed. It comes behind the locks
// of queues; other statements that lock the row of a context lock no queue.
func lockMoves(ctx context.Context, t *db.Txn, contextID int32) error {
	b := &pgx.Batch{}
	b.Queue(`SELECT FROM postern.context WHERE context_id = $1 FOR NO KEY UPDATE`, contextID)
	return t.Send(ctx, b)
}

// dependsOn walks from what some transactions depend on to what stands before that, and so on, and returns one of to
// that it meets as a dependency, or nil. Places in the queue own count for nothing. Not done: it gave up.
func dependsOn(ctx context.Context, t *db.Txn, from, to []position, own int64) (met *position, done bool, err error) {
	goal := map[position]bool{}
	for _, p := range to {
		goal[p] = true
	}
	seen := map[position]bool{}
	for len(from) > 0 && met == nil && len(seen) <= waitsAtMost {
		var queues, seqs []int64
		for _, p := range from {
			queues, seqs = append(queues, p.queue), append(seqs, p.seq)
		}
		from = nil
		b := &pgx.Batch{}
		// what they depend on, and what depends and stands before that in its queue
		b.Queue(`SELECT DISTINCT x.queue_id, x.seq, x.direct FROM ROWS FROM (unnest($1::bigint[]), unnest($2::bigint[])) n(queue_id, seq)
			JOIN postern.mark h ON (h.queue_id, h.seq, h.kind) = (n.queue_id, n.seq, 'held')
			JOIN postern.dependency d ON (d.queue_id, d.seq) = (n.queue_id, n.seq)
			CROSS JOIN LATERAL (SELECT d.on_queue AS queue_id, d.on_seq AS seq, true AS direct
				UNION ALL SELECT k.queue_id, k.seq, false FROM postern.mark k
					LEFT JOIN postern.mark p ON (p.queue_id, p.seq, p.kind) = (k.queue_id, k.seq, 'placed')
					LEFT JOIN postern.mark r ON (r.queue_id, r.seq, r.kind) = (d.on_queue, d.on_seq, 'placed')
					WHERE k.queue_id = d.on_queue AND k.queue_id <> $3 AND k.kind = 'held' AND coalesce(p.rank, k.seq) < coalesce(r.rank, d.on_seq)) x
			WHERE NOT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq) = (x.queue_id, x.seq))`, queues, seqs, own).Query(func(rows pgx.Rows) error {
			var p position
			var direct bool
			_, err := pgx.ForEachRow(rows, []any{&p.queue, &p.seq, &direct}, func() error {
				if direct && goal[p] {
					met = &position{p.queue, p.seq}
				}
				if !seen[p] {
					seen[p] = true
					from = append(from, p)
				}
				return nil
			})
			return err
		})
		if err := t.Send(ctx, b); err != nil {
			return nil, false, err
		}
	}
	return met, len(seen) <= waitsAtMost, nil
}

func (m *move) circle(p *position) string {
	switch {
	case p == nil:
		return fmt.Sprintf("more than %d transactions depend on each other around %s: it cannot be seen that none would wait for itself", waitsAtMost, m.id)
	case m.ahead:
		return fmt.Sprintf("transaction %s depends, perhaps through others, on position %d of its queue: it cannot go ahead of that", m.id, p.seq)
	}
	return fmt.Sprintf("one that would go ahead of transaction %s depends on it, perhaps through others", m.id)
}
