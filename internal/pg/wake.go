package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Woken is what a round of timers brought.
type Woken struct {
	Due    int      // timers that were due
	Leases []*Lease // now owned by the node: delays that ended, unknown outcomes to ask about
	Polls  []*Lease // without an owner: submitted transactions whose inclusion is to be asked about
	Next   time.Time
	Now    time.Time
}

// delayBackstop is how long the timer of a delay that was handed out is put off. It is needed only where its node does
// nothing, since a dead node's queues are released. A poll has no owner: its timer is put off by the node's TTL, in
// which the node must be done with it, so that there is never a second waiter for one transaction (S2.5 row 10).
const delayBackstop = 30 * time.Second

// quarantineRest is how long a timer of a scope in quarantine is put off. So it runs that long after the release at the
// latest.
const quarantineRest = 10 * time.Second

// noRoom is how long a due delay is put off by a node that has its hands full.
const noRoom = 100 * time.Millisecond

// Wake handles up to limit timers that are due. HELD becomes READY; a delay, or an unknown outcome, is
// leased to the node as long as it has room; a submitted transaction is handed out as a poll, with its
// timer put off, which is the poll's lease.
//
// A queue that was HELD stands in the lane that its head needs now: type and queue may have other settings than when it
// was put there.
//
// It never waits for a lock: timers and queues are locked with SKIP LOCKED. A timer whose queue is in
// other hands stays for the next round.
//
// Timers of scopes in quarantine are put off; while everything is in quarantine, no timer is read. Timers of types that
// the node does not work on are left to other nodes, except those of HELD queues, which lead to no call.
func (s *Store) Wake(ctx context.Context, node Node, room, limit int) (w Woken, err error) {
	if s.QuarantineView().Whole() {
		return Woken{}, nil
	}
	var leased []*QueueRow
	err = s.Run(ctx, func(t *db.Txn) error {
		w, leased = Woken{}, nil
		e := newEffects(s)
		due, err := s.dueTimers(ctx, t, node, limit, e, &w)
		if err != nil {
			return err
		}
		w.Now = e.now
		if w.Due = len(due.ids); w.Due == 0 {
			return t.Rollback(ctx)
		}
		if err := e.laneOfHeld(ctx, t, due); err != nil {
			return err
		}
		var polls []*QueueRow
		polls, leased = e.sortDue(due, node, room)
		b := &pgx.Batch{}
		e.write(b)
		load := newLoader(s, append(polls, leased...))
		for _, q := range leased {
			load.resumed[q.ID] = q.Phase == outbox.PhaseDispatching
		}
		if len(load.rows) > 0 {
			load.queue(b)
		}
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		leases, err := load.done(e.now)
		if err != nil {
			return err
		}
		w.Polls, w.Leases = leases[:len(polls)], leases[len(polls):]
		for _, l := range w.Leases {
			l.Resume = l.Phase == outbox.PhaseDispatching
		}
		if e.woke() && s.Doorbell != nil {
			if err := s.Doorbell(ctx, t.Begin); err != nil {
				return err
			}
		}
		t.Newest = e.newest()
		if err := t.Commit(ctx, &pgx.Batch{}); err != nil {
			return err
		}
		if e.woke() {
			s.RingHere()
		}
		return nil
	})
	return w, doubtful(node, leased, err)
}

// dueQueues are queues whose timers are due, as their locked rows are.
type dueQueues struct {
	ids   []int64
	rows  map[int64]*QueueRow
	alive bool // the node may lease them
	held  map[int64]bool
	// others are of types that the node does not work on, as their locked rows say: since the timers were found,
	// another transaction may have become the head of a queue.
	others map[int64]bool
}

// dueTimersSQL locks timers that are due, and dueTimersOfTypesSQL those of some types ($3) alone.
var (
	dueTimersSQL        = dueTimersWhere("")
	dueTimersOfTypesSQL = dueTimersWhere(`
		AND NOT EXISTS (` + queueOfOthersSQL + ` AND q.queue_id = t.queue_id AND o.type <> ALL ($3) OFFSET 0)`)
)

func dueTimersWhere(and string) string {
	return `SELECT t.queue_id
		FROM postern.timer t
		WHERE t.due_at <= coalesce($1::timestamptz, clock_timestamp())` + and + `
		ORDER BY t.due_at
		LIMIT $2
		FOR UPDATE OF t SKIP LOCKED`
}

func (s *Store) dueTimers(ctx context.Context, t *db.Txn, node Node, limit int, e *effects, w *Woken) (d dueQueues, err error) {
	quarantine := s.QuarantineView()
	b := &pgx.Batch{}
	s.ReadNow(b, &e.now)
	text, args := dueTimersSQL, []any{s.Clock(), limit}
	if len(node.Types) > 0 {
		text, args = dueTimersOfTypesSQL, append(args, node.Types)
	}
	b.Queue(text, args...).
		Query(func(r pgx.Rows) (err error) {
			d.ids, err = pgx.CollectRows(r, pgx.RowTo[int64])
			return err
		})
	b.Queue(`SELECT coalesce(min(due_at), '0001-01-01 00:00:00+00') FROM postern.timer WHERE due_at > coalesce($1::timestamptz, clock_timestamp())`, s.Clock()).
		QueryRow(func(r pgx.Row) error { return r.Scan(&w.Next) })
	b.Queue(liveNodeSQL, node.ID, node.Epoch, quarantine.number).
		Query(func(r pgx.Rows) error {
			d.alive = r.Next()
			r.Close()
			return r.Err()
		})
	if err := t.Send(ctx, b); err != nil || len(d.ids) == 0 {
		return dueQueues{}, err
	}
	d.rows, d.held, d.others = map[int64]*QueueRow{}, map[int64]bool{}, map[int64]bool{}
	b = &pgx.Batch{}
	lockQueues(b, lockSkipping, d.ids, nil, d.rows)
	// the rows behind the lock decide: a timer that was moved meanwhile is not due
	b.Queue(`SELECT queue_id FROM postern.timer WHERE queue_id = ANY ($1) AND due_at <= $2`, d.ids, e.now).Query(func(r pgx.Rows) (err error) {
		d.ids, err = pgx.CollectRows(r, pgx.RowTo[int64])
		return err
	})
	if len(node.Types) > 0 {
		var id int64
		each(b, queueOfOthersSQL+` AND q.queue_id = ANY ($1) AND o.type <> ALL ($2)`, []any{&id},
			func() { d.others[id] = true }, d.ids, node.Types)
	}
	if quarantine.Any() {
		var id int64
		each(b, quarantinedQueueSQL+` WHERE q.queue_id = ANY ($1)`, []any{&id}, func() { d.held[id] = true }, d.ids)
	}
	return d, t.Send(ctx, b)
}

// laneOfHeld lets due queues that are HELD stand where their heads need it now. It reads the heads of those alone whose
// lane may not fit, which is a statement more where settings have changed, and for exclusive types.
func (e *effects) laneOfHeld(ctx context.Context, t *db.Txn, due dueQueues) error {
	var wanted []stretch
	var to outbox.Day
	for _, id := range due.ids {
		if q := due.rows[id]; q != nil && q.Phase == outbox.PhaseHeld && e.s.whole(q) && !e.fits(q) {
			wanted, to = append(wanted, stretch{q.ID, q.First(), q.First(), q.HeadDay}), max(to, q.TailDay)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	heads, b := bodies{}, &pgx.Batch{}
	e.s.nextTasks(b, wanted, to, heads.add)
	if err := t.Send(ctx, b); err != nil {
		return err
	}
	lacks := missing{}
	for _, w := range wanted {
		q, head := due.rows[w.queue], heads[position{w.queue, w.seq}]
		if head == nil {
			return &bodyMissing{s: e.s, queue: w.queue, seq: w.seq}
		}
		var err error
		if q.Lane, err = e.laneOf(q, head); lacks.add(err) != nil {
			return err
		}
	}
	return lacks.err()
}

// fits says whether a queue is certainly in the lane that its head needs. Of an exclusive lane, and of one that this
// process has not seen yet, that is not known without the head.
func (e *effects) fits(q *QueueRow) bool {
	lane, known := e.s.Conf.shared.Load(q.Lane)
	if !known {
		return false
	}
	d := e.view.byID[lane.(laneKey).Dispatcher]
	return d != nil && (d.Exclusive == "" || d.Exclusive == "none") && e.s.Conf.need(d, q.Pool, q.Pin, nil) == lane
}

// sortDue decides what each due queue wants.
func (e *effects) sortDue(due dueQueues, node Node, room int) (polls, leased []*QueueRow) {
	for _, id := range due.ids {
		q := due.rows[id]
		switch {
		case q == nil, due.others[id]: // locked by somebody, or gone; or for other nodes
			continue
		case !e.s.whole(q):
			e.timerSet[id] = e.now.Add(time.Minute)
		case q.Phase == outbox.PhaseIdle, q.Phase == outbox.PhaseReady, q.Phase == outbox.PhaseDispatching && q.Node != 0:
			e.timerDel = append(e.timerDel, id)
		case q.Node != 0: // a delay whose owner is at work, or dead and not yet released
			e.timerSet[id] = e.now.Add(delayBackstop)
		case due.held[id] && q.Phase != outbox.PhaseHeld:
			e.timerSet[id] = e.now.Add(quarantineRest)
		case q.Phase == outbox.PhaseHeld:
			e.timerDel = append(e.timerDel, id)
			q.NotBefore = zeroTime
			e.stand(q)
			e.saved = append(e.saved, q)
		case !due.alive:
			e.timerSet[id] = e.now.Add(noRoom)
		case q.Phase == outbox.PhaseWaitingInclusion:
			e.timerSet[id] = e.now.Add(node.TTL) // so that a crash in the poll costs no more than any other
			polls = append(polls, q)
		case len(leased) >= room: // behind the others that are due, so that none starves
			e.timerSet[id] = e.now.Add(noRoom)
		default:
			if e.timerDel = append(e.timerDel, id); q.Phase == outbox.PhaseDelay {
				e.timerSet[id] = e.now.Add(delayBackstop)
			}
			e.own(q, node)
			e.saved = append(e.saved, q)
			leased = append(leased, q)
		}
	}
	return polls, leased
}

// Polled puts off the next poll of submitted transactions that are still pending, each to its own time
// from now, with what was heard of it, "" if that is no more than that it is pending. A transaction that has moved on
// meanwhile is left alone.
func (s *Store) Polled(ctx context.Context, queues []int64, delays []time.Duration, said []string) error {
	if len(queues) == 0 {
		return nil
	}
	_, err := s.Exec(ctx, `
		UPDATE postern.timer t
		SET due_at = coalesce($4::timestamptz, clock_timestamp()) + n.delay, said = nullif(n.said, '')
		FROM ROWS FROM (unnest($1::bigint[]), unnest($2::interval[]), unnest($3::text[])) n(queue_id, delay, said)
		WHERE t.queue_id = n.queue_id
			AND EXISTS (SELECT FROM postern.queue q WHERE q.queue_id = n.queue_id AND q.phase = 'WAITING_INCLUSION')`,
		queues, delays, said, s.Clock())
	return err
}

// Hasten has submitted transactions asked about at once, whose outcome a system knows. A queue whose head waits for
// something else is left alone.
//
// So is one that is due within the TTL of a node: a poll is under way, whose lease that is, and a second one beside it
// would be late. That poll may have read an older state, or die, and an acceptance may come later and put the timer
// off: a system looks again until its transaction has gone on.
func (s *Store) Hasten(ctx context.Context, queues []int64) error {
	if len(queues) == 0 {
		return nil
	}
	_, err := s.Exec(ctx, `
		UPDATE postern.timer t SET due_at = coalesce($2::timestamptz, clock_timestamp())
		WHERE t.queue_id = ANY ($1) AND t.due_at > coalesce($2::timestamptz, clock_timestamp()) + (
				SELECT coalesce(max(n.ttl), '0')
				FROM postern.node n WHERE n.dead_at IS NULL)
			AND EXISTS (
				SELECT FROM postern.queue q
				WHERE q.queue_id = t.queue_id AND q.phase = 'WAITING_INCLUSION')`, queues, s.Clock())
	if err == nil {
		s.RingHere()
	}
	return err
}
