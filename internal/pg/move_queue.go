package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	pgdb "github.com/postern-dev/postern/internal/pg/db"
)

// codeMoved is the code of the end that a transaction has in the queue that it was moved out of. That end is never
// shown: readers of the old id are led to the new one.
const codeMoved = "moved"

// MoveTo moves a waiting transaction to another queue of its context: to a place there, or with nil to its end. It gets
// a new position and with it a new id there (Moved); its uid, what it depends on and who depends on it, its
// marks and its history go along, and the old id leads to the new one. Outcomes: those of Move, and of a post to
// that queue ("queue_draining", "queue_full"); Conflict "wrong_state" too if it is there already.
//
// Why it is in one queue at any time: both queues are locked in the order of their ids, and its end here and its
// beginning there are one commit. Why no end of what it depends on is missed: such an end locks the queues of
// the dependents that it knows and reads them again behind its locks; it begins again if one has moved (reach).
func (s *Store) MoveTo(ctx context.Context, by pgdb.By, id outbox.ID, queue string, to *Place) (r LeverResult, err error) {
	if err := outbox.Reserved(outbox.Anyone, "", "", queue); err != nil {
		return r, err
	}
	if pgdb.JointOf(ctx) != nil { // a dry run
		return s.moveTo(ctx, by, id, queue, to)
	}
	if err := s.EnsureQueues(ctx, []*Submission{{ContextID: by.Context, Queue: queue}}); err != nil {
		return r, err
	}
	err = pgdb.Again(func() error {
		return s.Together(ctx, nil, func(ctx context.Context) (err error) {
			r, err = s.moveTo(ctx, by, id, queue, to)
			return err
		})
	})
	return r, err
}

func (s *Store) moveTo(ctx context.Context, by pgdb.By, id outbox.ID, queue string, to *Place) (r LeverResult, err error) {
	subs := []*Submission{{ContextID: by.Context, Queue: queue}}
	if err := s.EnsureQueues(ctx, subs); err != nil {
		return r, err
	}
	var m *transfer
	err = s.Run(ctx, func(t *pgdb.Txn) error {
		target := s.QueueID(by.Context, queue)
		h, err := s.holdAll(ctx, t, by, "move", id, nil, target)
		if err != nil {
			return err
		}
		m = &transfer{inHand: h, there: h.rows[target], to: to}
		if m.there == nil { // reaped meanwhile
			s.forgetQueue(target)
			return &queueMissing{s, subs}
		}
		if err := m.allowed(ctx, t, queue); err != nil {
			return err
		}
		if err := m.circle(ctx, t); err != nil {
			return err
		}
		b := &pgx.Batch{}
		if err := m.leaveHere(ctx, t, by, b); err != nil {
			return err
		}
		if err := m.arrive(b); err != nil {
			return err
		}
		s.AuditChange(b, by, "move", TxPath(id), nil, map[string]string{"queue": queue, "id": m.task.ID.String()})
		return h.e.commit(ctx, t, b)
	})
	if err != nil {
		return r, err
	}
	if by.Match = nil; to != nil { // it was about the old one
		_, err = s.moveAs(ctx, by, m.task.ID, *to, "", "")
	}
	return LeverResult{Changed: true, Moved: &m.task.ID}, err
}

// transfer is one move to another queue.
type transfer struct {
	*inHand
	there   *QueueRow
	to      *Place
	watched bool // others depend on it
}

// allowed refuses what cannot be done.
func (m *transfer) allowed(ctx context.Context, t *pgdb.Txn, queue string) error {
	id, q := m.task.ID, m.there
	switch {
	case m.state.Terminal():
		return fault.New(fault.Conflict, "wrong_state", "transaction %s is %s already", id, m.state)
	case m.state != outbox.WAITING:
		return fault.New(fault.Conflict, "wrong_state", "transaction %s is %s: only what waits can be moved", id, m.state)
	case q.ID == id.Queue:
		return fault.New(fault.Conflict, "wrong_state", "transaction %s is in queue %q already: leave queue out, and name a place", id, fault.Clip(queue))
	case q.Draining:
		return fault.New(fault.Conflict, "queue_draining", "queue %q accepts nothing more until it is resumed", fault.Clip(queue))
	}
	out, err := m.q.out(ctx, t)
	if err == nil && out == id.Seq {
		err = fault.New(fault.Conflict, "wrong_state", "transaction %s has been out before: it keeps its turn", id)
	}
	if err != nil {
		return err
	}
	if err := exact(ctx, t, []*QueueRow{q}); err != nil { // it may get marks, which count from the head on
		return err
	}
	limit := int64(q.MaxDepth)
	if limit == 0 {
		limit = int64(m.e.view.maxDepth(q.Context))
	}
	if q.Tail-q.Head+1 < limit {
		return nil
	}
	n, err := depth(ctx, t, q)
	if err == nil && n >= limit {
		err = fault.New(fault.Retry, "queue_full", "queue %q holds %d of at most %d transactions: wait, or raise max_depth", fault.Clip(queue), n, limit).
			With("queue_depth", n).After(2 * time.Second)
	}
	return err
}

// circle refuses a move after which it would wait for itself: it depends on one that would go out behind it, or
// one that would go out before it depends on it, perhaps through others.
func (m *transfer) circle(ctx context.Context, t *pgdb.Txn) error {
	b := &pgx.Batch{}
	id := m.task.ID
	b.Queue(`SELECT EXISTS (SELECT FROM postern.mark WHERE (queue_id, seq, kind) = ($1, $2, 'watched'))`, id.Queue, id.Seq).
		QueryRow(func(row pgx.Row) error { return row.Scan(&m.watched) })
	if err := t.Send(ctx, b); err != nil || !m.held && !m.watched {
		return err
	}
	if err := lockMoves(ctx, t, m.q.Context); err != nil {
		return err
	}
	anchor, err := m.anchor(ctx, t)
	if err != nil {
		return err
	}
	var before, behind []position
	q := m.there
	b = &pgx.Batch{}
	b.Queue(`WITH open AS MATERIALIZED (`+OpenSQL+`)
		SELECT o.seq, CASE WHEN $4::bigint IS NULL THEN true WHEN $5 THEN o.rank <= a.rank ELSE o.rank < a.rank END FROM open o LEFT JOIN open a ON a.seq = $4`,
		q.ID, q.Head, q.HeadDay.Time(), anchor, m.to != nil && m.to.Before == nil).Query(func(rows pgx.Rows) error {
		var seq int64
		var first *bool // null where the anchor is not there
		_, err := pgx.ForEachRow(rows, []any{&seq, &first}, func() error {
			if p := (position{q.ID, seq}); first != nil && *first {
				before = append(before, p)
			} else {
				behind = append(behind, p)
			}
			return nil
		})
		return err
	})
	if err := t.Send(ctx, b); err != nil {
		return err
	}
	self := []position{positionOf(id)}
	for _, way := range []struct {
		from, to []position
		text     string
	}{{self, behind, "transaction %s depends, perhaps through others, on what would go out behind it"},
		{before, self, "what would go out before transaction %s depends on it, perhaps through others"}} {
		if len(way.from) == 0 || len(way.to) == 0 {
			continue
		}
		met, done, err := dependsOn(ctx, t, way.from, way.to, 0)
		switch {
		case err != nil:
			return err
		case !done:
			return fault.New(fault.Invalid, "dependency_cycle", "more than %d transactions depend on each other around %s: it cannot be seen that none would wait for itself", waitsAtMost, id).About("/queue")
		case met != nil:
			return fault.New(fault.Invalid, "dependency_cycle", way.text, id).About("/queue")
		}
	}
	return nil
}

// anchor is the position that it is placed before or behind: nil for the end of the queue, 0 for before everything.
func (m *transfer) anchor(ctx context.Context, t *pgdb.Txn) (any, error) {
	switch {
	case m.to == nil:
		return nil, nil
	case m.to.Before != nil:
		return m.to.Before.Seq, isThere(ctx, t, *m.to.Before)
	case m.to.After != nil:
		return m.to.After.Seq, isThere(ctx, t, *m.to.After)
	}
	return m.there.out(ctx, t)
}

// leaveHere ends it in the queue where it is. No subscriber hears of that end.
func (m *transfer) leaveHere(ctx context.Context, t *pgdb.Txn, by pgdb.By, b *pgx.Batch) error {
	old := *m.task
	q := m.there
	m.task.ID = outbox.ID{Queue: q.ID, Seq: q.Tail + 1, Day: max(outbox.DayOf(m.e.now), q.TailDay)}
	m.task.MovedFrom = old.ID.String()
	m.task.ID.Salt = outbox.SaltOf(m.task.CreatedAt, m.task.MovedFrom)
	b.Queue(`INSERT INTO postern.outcome (queue_id, seq, day, context_id, was, state, error_code, error, result, done_at)
		VALUES ($1, $2, $3, $4, 'WAITING', 'CANCELLED', '`+codeMoved+`', $5, jsonb_build_object('moved_to', $6::text), $7)`,
		old.ID.Queue, old.ID.Seq, old.ID.Day.Time(), old.ContextID, by.Reason, m.task.ID.String(), m.e.now)
	return m.e.passOver(ctx, t, m.q, &old, by, nil)
}

// arrive puts it at the end of the other queue, with all that belongs to it.
func (m *transfer) arrive(b *pgx.Batch) error {
	q, task := m.there, m.task
	from, err := outbox.ParseID(task.MovedFrom)
	if err != nil {
		return err
	}
	idle := q.Phase == outbox.PhaseIdle
	q.Tail, q.TailDay = task.ID.Seq, task.ID.Day
	for _, has := range []bool{m.held, m.suspended, m.watched} {
		if has {
			q.Marks++
		}
	}
	if task.Held = m.held || m.suspended; idle {
		if err := m.e.rest(q, task, true); err != nil {
			return err
		}
	}
	m.e.save(q)
	insertTasks(b, []*Task{task})
	old, now := []any{from.Queue, from.Seq}, []any{task.ID.Queue, task.ID.Seq, task.ID.Day.Time()}
	both := append(old, now...)
	b.Queue(`INSERT INTO postern.mark (queue_id, seq, kind, reason, actor, at) SELECT $3, $4, kind, reason, actor, at FROM postern.mark
		WHERE (queue_id, seq) = ($1, $2) AND kind IN ('held', 'suspended', 'watched')`, both[:4]...)
	b.Queue(`UPDATE postern.dependency SET queue_id = $3, seq = $4, day = $5 WHERE (queue_id, seq) = ($1, $2)`, both...)
	b.Queue(`UPDATE postern.dependency SET on_queue = $3, on_seq = $4, on_day = $5, on_salt = $6 WHERE (on_queue, on_seq) = ($1, $2)`, append(both, task.ID.Salt)...)
	if task.UID != "" {
		b.Queue(`UPDATE postern.idempotency SET queue_id = $3, seq = $4, day = $5, salt = $6
			WHERE (context_id, key) = ($1, $2)`,
			append(append([]any{task.ContextID, task.UID}, now...), task.ID.Salt)...)
	}
	if maker := m.e.s.MakerOf(task.Type, task.UID); maker != nil {
		maker.Moved(b, task)
	}
	if of, err := outbox.ParseID(task.RedriveOf); err == nil {
		b.Queue(`UPDATE postern.redrive SET new_id = $3::text::uuid WHERE (queue_id, seq) = ($1, $2)`, of.Queue, of.Seq, task.ID.String())
	}
	return nil
}

// follow adds to found what of ids was moved to another queue, as read there.
func follow(ctx context.Context, db pgdb.Querier, ids []outbox.ID, found map[outbox.ID]*Transaction, read func([]outbox.ID) (map[outbox.ID]*Transaction, error)) error {
	var queues, seqs []int64
	var days []time.Time
	asked := map[position]outbox.ID{}
	for _, id := range ids {
		if found[id] == nil {
			asked[positionOf(id)] = id
			queues, seqs, days = append(queues, id.Queue), append(seqs, id.Seq), append(days, id.Day.Time())
		}
	}
	rows, err := db.Query(ctx, `SELECT o.queue_id, o.seq, postern.salt(t.created_at, t.moved_from), o.result->>'moved_to' FROM ROWS FROM (unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::date[])) n(queue_id, seq, day)
		JOIN postern.outcome o USING (queue_id, seq, day) JOIN postern.task t USING (queue_id, seq, day) WHERE o.error_code = '`+codeMoved+`'`, queues, seqs, days)
	if err != nil {
		return pgdb.Known(err)
	}
	to := map[outbox.ID]outbox.ID{}
	var list []outbox.ID
	var p position
	var text string
	var salt int
	if _, err := pgx.ForEachRow(rows, []any{&p.queue, &p.seq, &salt, &text}, func() error {
		id, err := outbox.ParseID(text)
		if asked[p].Salt != salt {
			return err
		}
		to[asked[p]] = id
		list = append(list, id)
		return err
	}); err != nil || len(list) == 0 {
		return pgdb.Known(err)
	}
	there, err := read(list)
	for old, id := range to {
		if t := there[id]; t != nil {
			found[old] = t
		}
	}
	return err
}

// PathsOf lists under which names what people did to a transaction is kept: its own, and those that it had
// before it was moved.
func (s *Store) PathsOf(ctx context.Context, t *Transaction) ([]string, error) {
	paths, text := []string{TxPath(t.ID)}, t.MovedFrom
	for text != "" {
		id, err := outbox.ParseID(text)
		if err != nil {
			return nil, err
		}
		paths = append(paths, TxPath(id))
		err = s.Db(ctx).QueryRow(ctx, `SELECT coalesce(max(moved_from::text), '') FROM postern.task WHERE (queue_id, seq, day) = ($1, $2, $3)`,
			id.Queue, id.Seq, id.Day.Time()).Scan(&text)
		if err != nil {
			return nil, pgdb.Known(err)
		}
	}
	return paths, nil
}
