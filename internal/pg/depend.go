package pg

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// CodeDependency is the code of what failed because something that it depends on did not end DONE (S2.15).
const CodeDependency = "dependency_failed"

// How many dependents one SQL transaction takes along; Ripple reaches those beyond. The dependents that fail with an
// end are told in its own transaction, as long as that holds their queues for less than a second or so.
const (
	failAtOnce  = 10_000
	reachAtOnce = 1000 // that are released, or left to a ripple
)

// reach propagates an end to its dependents: DONE releases a transaction that depends on it and on nothing else that
// is open; any other end fails its dependents, and their dependents in turn.
//
// Why no dependent is forgotten: the post of a dependent locks the queue of the transaction that it depends on, and
// marks that as watched, or reads its outcome behind that lock. The end of a watched transaction locks the queues of
// the dependents before it reads whether something else holds them. So where a transaction waits for two ends, the
// later one sees the other's outcome. A dependent that was posted after the read of the queues to lock, and before
// our lock on the end's own queue, is found behind the locks, and all begins again.
//
// Why this is no deadlock: all queues, the end's own among them, are locked in one statement in the order of their
// ids.
type reach struct {
	root  outbox.ID
	good  bool // it ended DONE
	after position
	most  int // dependents in one SQL transaction
	list  []*dependent
	more  bool // somebody is left to a ripple
	next  map[int64]*Task
	fails map[int64][]int64 // positions of each queue
}

type dependent struct {
	*Task
	open bool // it waits for something else as well
}

// dependentsSQL finds who waits for an end: those that still have their mark, directly, in the order of
// their places.
const dependentsSQL = `SELECT ` + TaskSelect + `, EXISTS (SELECT FROM postern.mark s WHERE (s.queue_id, s.seq, s.kind) = (t.queue_id, t.seq, 'suspended') OFFSET 0),
		` + alsoWaitsSQL + heldBySQL + ` AND (d.queue_id, d.seq) > ($4, $5) ORDER BY d.queue_id, d.seq LIMIT $3`

// alsoWaitsSQL says whether a dependent waits for something else as well.
const alsoWaitsSQL = `EXISTS (SELECT FROM postern.dependency e
			LEFT JOIN postern.outcome o ON (o.queue_id, o.seq, o.day) = (e.on_queue, e.on_seq, e.on_day)
			WHERE (e.queue_id, e.seq) = (t.queue_id, t.seq) AND (e.on_queue, e.on_seq) <> ($1, $2)
				AND o.state IS DISTINCT FROM 'DONE' OFFSET 0)`

// heldBySQL reads the dependents of an end that still have their mark.
const heldBySQL = `
	FROM postern.dependency d JOIN postern.mark m ON (m.queue_id, m.seq, m.kind) = (d.queue_id, d.seq, 'held')
	JOIN postern.task t ON (t.queue_id, t.seq, t.day) = (d.queue_id, d.seq, d.day)
	WHERE (d.on_queue, d.on_seq) = ($1, $2)
		AND NOT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq, o.day) = (t.queue_id, t.seq, t.day))`

// finishSQL deletes the row of a ripple that went through all places, unless it has missed a dependent of a DONE end:
// one that was moved meanwhile, to a place that the ripple had gone past. It returns whether there is one.
//
// Why none is left: a statement has one snapshot, in which each dependent is in one place. One that is held there and
// waits for nothing else is seen. One that waits there for another end B as well is left to B, which commits later. If
// B reads behind the commit of this end, it releases the dependent, or leaves it to a ripple of its own. If B has read
// before, it holds the lock of the dependent's queue until its own commit, so that the dependent was not moved: the
// ripple found it in its place, waited there for B, and read again. A dependent that is posted later is not held by
// what is DONE. Where the end is another one, the last round has read all dependents in one statement, behind the
// locks of their queues, and has failed them.
const finishSQL = `WITH missed AS (SELECT EXISTS (SELECT` + heldBySQL + ` AND NOT ` + alsoWaitsSQL + `) AS one),
		ended AS (DELETE FROM postern.ripple WHERE (queue_id, seq) = ($1, $2) AND NOT (SELECT m.one FROM missed m))
	SELECT m.one FROM missed m`

// closureSQL finds who fails with an end, nearest first. It walks through dependents that have ended
// already, as an earlier round may have ended them.
const closureSQL = `WITH RECURSIVE c (queue_id, seq, day) AS (
		SELECT d.queue_id, d.seq, d.day FROM postern.dependency d WHERE (d.on_queue, d.on_seq) = ($1, $2)
		UNION
		SELECT d.queue_id, d.seq, d.day FROM c JOIN postern.dependency d ON (d.on_queue, d.on_seq) = (c.queue_id, c.seq)
	)
	SELECT ` + TaskSelect + `, false, false FROM c JOIN postern.task t ON (t.queue_id, t.seq, t.day) = (c.queue_id, c.seq, c.day)
	WHERE NOT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq, o.day) = (t.queue_id, t.seq, t.day))
		AND (c.queue_id, c.seq) > ($4, $5) LIMIT $3`

func (r *reach) read(b *pgx.Batch) {
	sql := closureSQL
	if r.good {
		sql = dependentsSQL
	}
	r.list, r.more = nil, false
	b.Queue(sql, r.root.Queue, r.root.Seq, r.most+1, r.after.queue, r.after.seq).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			d := &dependent{Task: &Task{}}
			if err := rows.Scan(append(d.Dests(), &d.Held, &d.open)...); err != nil {
				return err
			}
			d.Tidy()
			if len(r.list) == r.most {
				r.more = true
			} else {
				r.list = append(r.list, d)
			}
		}
		return rows.Err()
	})
}

// reachOf looks, without locks, whom the end of root would get to, behind a place.
func (s *Store) reachOf(ctx context.Context, root outbox.ID, good bool, after position) (*reach, error) {
	r := &reach{root: root, good: good, after: after, most: reachAtOnce}
	if !good {
		r.most = s.failAtOnce
	}
	return r, s.readReach(ctx, r)
}

func (s *Store) readReach(ctx context.Context, r *reach) error {
	b := &pgx.Batch{}
	r.read(b)
	return db.Known(s.Db(ctx).SendBatch(ctx, b).Close())
}

// queues adds to more what has to be locked beside it; a queue may be there twice.
func (r *reach) queues(more ...int64) []int64 {
	for _, d := range r.list {
		more = append(more, d.ID.Queue)
	}
	return more
}

// grown asks run to look again whom an end gets to: somebody posted a dependent between the look and the
// locks.
type grown struct {
	s *Store
	r *reach
}

func (e *grown) Error() string { return "an end has more dependents than were seen" }

// Mend reads them again.
func (e *grown) Mend(ctx context.Context) error { return e.s.readReach(ctx, e.r) }

// Elsewhere is false: they are read inside a commit that several calls share.
func (e *grown) Elsewhere() bool { return false }

// behind reads again what the locks have settled.
func (r *reach) behind(ctx context.Context, s *Store, t *db.Txn, rows map[int64]*QueueRow) error {
	b := &pgx.Batch{}
	r.read(b)
	if err := t.Send(ctx, b); err != nil {
		return err
	}
	for _, d := range r.list {
		if rows[d.ID.Queue] == nil {
			return &grown{s, r}
		}
	}
	if r.good {
		return nil
	}
	b = &pgx.Batch{}
	r.next = map[int64]*Task{}
	r.fails = map[int64][]int64{}
	for _, d := range r.list {
		r.fails[d.ID.Queue] = append(r.fails[d.ID.Queue], d.ID.Seq)
	}
	for id, fails := range r.fails { // a queue whose head fails goes on behind it
		q := rows[id]
		if q.Phase != outbox.PhaseHeld || !slices.Contains(fails, q.First()) {
			continue
		}
		if int64(len(fails)) == q.Tail-q.Head+1 { // nothing is left in it
			continue
		}
		nextUnsettled(b, q, fails, func(t *Task) { r.next[id] = t })
	}
	if b.Len() == 0 {
		return nil
	}
	return t.Send(ctx, b)
}

// except lists the positions of a queue that fail: they are no head any more.
func (r *reach) except(queue int64) []int64 {
	if r == nil {
		return nil
	}
	return r.fails[queue]
}

// apply releases or fails the dependents. An end calls it before it moves its own queue on.
func (r *reach) apply(e *effects, rows map[int64]*QueueRow, state outbox.State) error {
	if r.more {
		e.ripples = append(e.ripples, r.root)
	}
	for _, d := range r.list {
		q := rows[d.ID.Queue]
		var err error
		switch {
		case !r.good:
			err = e.fail(q, d.Task, r, fmt.Sprintf("it depends on %s, which ended %s", r.root, state))
		case !d.open:
			err = e.release(q, d.Task)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// releases lets the next of the queue of the root, which may be nil, go out if it waited for this end alone.
func (r *reach) releases(next *Task) {
	if next == nil || !r.good {
		return
	}
	for _, d := range r.list {
		if d.ID == next.ID && !d.open {
			next.Held = d.Held
		}
	}
}

// release takes the mark of a dependent whose last dependency is DONE. At the head its queue goes on.
func (e *effects) release(q *QueueRow, t *Task) error {
	e.unmarks = append(e.unmarks, markRow{Queue: q.ID, Seq: t.ID.Seq, Kind: "held"})
	q.Marks--
	e.save(q)
	if q.Phase != outbox.PhaseHeld || q.First() != t.ID.Seq {
		return nil
	}
	e.leave(q)
	return e.rest(q, t, false)
}

// fail ends a transaction that has not gone out. At the head its queue goes on with the next; behind it
// the mark that held it is what makes the queue look for an outcome.
func (e *effects) fail(q *QueueRow, t *Task, r *reach, because string) error {
	e.failed(t, because)
	e.pauseAfterFailure(q)
	e.save(q)
	if q.Phase != outbox.PhaseHeld || q.First() != t.ID.Seq {
		return nil
	}
	e.leave(q)
	if err := e.rest(q, r.next[q.ID], true); err != nil {
		return err
	}
	if !q.Named && q.Phase == outbox.PhaseIdle {
		e.removed = append(e.removed, q.ID)
	}
	return nil
}

// failed records the outcome of what waited for something that will never be.
func (e *effects) failed(t *Task, because string) {
	o := &outcomeRow{ID: t.ID, Type: t.Type, Callback: t.Callback, Context: t.ContextID, Was: outbox.WAITING,
		State: outbox.FAILED, Code: CodeDependency, Error: because}
	if d := e.view.dispatcherOf(t.ContextID, t.Type); d != nil && d.HasHooks() {
		o.Hook = outbox.OnFailure
	}
	e.outcomes = append(e.outcomes, o)
}

// pauseAfterFailure is on_failure: pause (S2.19).
func (e *effects) pauseAfterFailure(q *QueueRow) {
	if !q.PauseOnFailure || q.Paused {
		return
	}
	if q.Phase == outbox.PhaseReady {
		e.leave(q)
	}
	q.Paused = true
}

// Rippling says that this process left dependents to Ripple.
func (s *Store) Rippling() bool { return s.rippling.Load() }

// Ripple takes ends to dependents that their own SQL transactions did not reach, and returns how many ends those were.
// It is safe to run anywhere and at any time: it goes on where an earlier round has ended.
func (s *Store) Ripple(ctx context.Context) (n int, err error) {
	s.rippling.Store(false)
	rows, err := s.Pool().Query(ctx, `SELECT r.queue_id, r.seq, r.day - '1970-01-01', postern.salt(t.created_at, t.moved_from), o.state
		FROM postern.ripple r -- first, however few rows the others once had
		CROSS JOIN LATERAL (SELECT t.created_at, t.moved_from FROM postern.task t WHERE (t.queue_id, t.seq, t.day) = (r.queue_id, r.seq, r.day) LIMIT 1) t
		CROSS JOIN LATERAL (SELECT state FROM postern.outcome o WHERE (o.queue_id, o.seq, o.day) = (r.queue_id, r.seq, r.day) LIMIT 1) o ORDER BY r.at LIMIT 1000`)
	if err != nil {
		return 0, db.Known(err)
	}
	type end struct {
		id    outbox.ID
		state outbox.State
	}
	ends, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e end, err error) {
		return e, row.Scan(&e.id.Queue, &e.id.Seq, &e.id.Day, &e.id.Salt, &e.state)
	})
	if err != nil {
		return 0, db.Known(err)
	}
	for _, e := range ends {
		if err := s.ripple(ctx, e.id, e.state); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// ripple takes one end to all its dependents, chunk by chunk.
func (s *Store) ripple(ctx context.Context, root outbox.ID, state outbox.State) error {
	var after position
	for {
		r := &reach{root: root, good: state == outbox.DONE, after: after, most: reachAtOnce}
		if err := s.readReach(ctx, r); err != nil {
			return err
		}
		var done bool
		err := s.Run(ctx, func(t *db.Txn) error {
			e := newEffects(s)
			rows := map[int64]*QueueRow{}
			b := &pgx.Batch{}
			lockAll(b, r.queues(), rows)
			s.ReadNow(b, &e.now)
			if err := t.Send(ctx, b); err != nil {
				return err
			}
			if err := r.behind(ctx, s, t, rows); err != nil {
				return err
			}
			done, r.more = !r.more, false // the rest has its ripple already
			if err := r.apply(e, rows, state); err != nil {
				return err
			}
			return e.commit(ctx, t, &pgx.Batch{})
		})
		switch missed := false; {
		case err != nil:
			return err
		case done:
			after = position{}
			if err := s.WriteRow(ctx, finishSQL, []any{root.Queue, root.Seq}, &missed); err != nil || !missed {
				return err
			}
		case r.good: // a dependent that fails has left the list, but not one that waits for something else
			after = positionOf(r.list[len(r.list)-1].ID)
		}
	}
}
