package pg

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/twin"
)

// effects collects what one transaction writes besides bodies, and writes it set by set in the lock
// order of the package.
type effects struct {
	s    *Store
	view *confView // by which all of it is decided
	now  time.Time

	saved    []*QueueRow
	inserted []*QueueRow
	removed  []int64 // unnamed queues whose only transaction ended

	accepted []*Task
	outcomes []*outcomeRow
	attempts []*attemptRow
	lost     []lostCall
	marks    []markRow
	unmarks  []markRow
	ripples  []outbox.ID // ends that have not reached all their dependents
	depends  []dependencyRow
	redrives []redriveRow

	readyAdd, readyDel []readyKey
	timerSet           map[int64]time.Time
	timerSaid          map[int64]string // beside timerSet: what came of the last question, where there was one
	timerDel           []int64
	senderBind         map[int32]int64 // sender -> queue
	senderFree         []senderFree
	holdersFree        []int64         // queues that let go of their exclusive lane
	holders            map[int32]int64 // exclusive lanes that a queue takes without a claim, where they are free
	gates              []gate
	told               bool // somebody is to hear of it
}

type outcomeRow struct {
	ID                                outbox.ID
	Type                              string
	Context                           int32
	Was, State                        outbox.State
	Result, Members                   json.RawMessage
	Class, Code, Error                string
	Attempt, Retries                  int
	Fence                             int64
	Sender                            int32
	Node                              int64
	Fee, Nonce, Hash, Height          string
	StartedAt, SubmittedAt, RetriedAt time.Time
	Callback                          *outbox.Callback // of its transaction
	Hook                              outbox.Hook      // which its worker is to hear; "" for none
}

type attemptRow struct {
	ID                 outbox.ID
	Attempt            int
	Fence              int64
	Step               string
	Sender             int32
	Node               int64
	Fee, Nonce, Hash   string
	Data, Members      json.RawMessage
	Class, Code, Error string
	NothingDone        bool // it is certain that the call had no effect
	Doubted            bool // its worker itself said that it may have had one
	StartedAt          time.Time
	At                 time.Time // of the answer; zero = now
}

// lostCall is a dispatch whose end its node did not see. The next owner asks before anything is sent; this row tells
// people that there was a first node (S2.13).
type lostCall struct {
	Queue, Seq      int64
	From, To        outbox.Day // the task's day lies between them
	Attempt         int
	Fence           int64
	Sender          int32
	Node            int64
	Fee, Code, Text string
	StartedAt       time.Time
}

type markRow struct {
	Queue, Seq          int64
	Kind, Reason, Actor string
}

type dependencyRow struct{ Who, On outbox.ID }

type redriveRow struct{ Of, New outbox.ID }

type readyKey struct {
	Lane  int32
	Prio  int16
	Since time.Time
	Queue int64
	Era   int32 // of the queue's row, or an earlier one
}

type senderFree struct {
	Sender int32
	Nonce  string
	Block  bool // abandoned: it is not used until an operator unblocks it
	Until  time.Time
	Why    string // with Until: blocked by its pool after a failure
}

// gate closes or opens the way to an address.
type gate struct {
	Dispatcher, Sender int32 // one of them
	Until              time.Time
	Open               bool
	Pass               bool // another probe may go out now
	Why                string
	Node               int64 // whose call closes it
}

func newEffects(s *Store) *effects {
	return &effects{s: s, view: s.Conf.view.Load(),
		timerSet: map[int64]time.Time{}, timerSaid: map[int64]string{}, senderBind: map[int32]int64{}}
}

// woke says whether there may be something to claim because of this transaction.
func (e *effects) woke() bool { return len(e.readyAdd) > 0 }

// commit writes everything and commits, then rings if there is something to wake up for.
func (e *effects) commit(ctx context.Context, t *db.Txn, b *pgx.Batch) error {
	e.write(b)
	if err := e.tell(ctx, t, b); err != nil {
		return err
	}
	if e.woke() && e.s.Doorbell != nil {
		if err := e.s.Doorbell(ctx, t.Begin); err != nil {
			return err
		}
	}
	t.Newest = e.newest()
	if err := t.Commit(ctx, b); err != nil {
		return err
	}
	if e.s.Count != nil && (t.Joint == nil || !t.Joint.Dry) {
		e.count()
	}
	if told := e.s.ended.Load(); told != nil && t.Joint == nil {
		for _, o := range e.outcomes {
			(*told)(o.ID)
		}
	}
	if len(e.ripples) > 0 {
		e.s.rippling.Store(true)
	}
	opened := slices.ContainsFunc(e.gates, func(g gate) bool { return g.Open })
	if e.woke() || len(e.ripples) > 0 || len(e.timerSet) > 0 || e.told || opened ||
		len(e.senderFree) > 0 || len(e.holdersFree) > 0 {
		e.s.RingHere()
	}
	return nil
}

// count tells how many transactions were accepted and ended.
func (e *effects) count() {
	for _, t := range e.accepted {
		e.s.Count(t.Type, outbox.WAITING)
	}
	for _, o := range e.outcomes {
		e.s.Count(o.Type, o.State)
	}
}

func (e *effects) write(b *pgx.Batch) {
	if len(e.inserted) > 0 {
		insertQueues(b, e.inserted)
	}
	e.saved = once(e.saved)
	if len(e.saved) > 0 {
		queueUpdate(b, e.saved)
	}
	if len(e.removed) > 0 {
		b.Queue(`DELETE FROM postern.queue WHERE queue_id = ANY ($1)`, e.removed)
	}
	e.writeHistory(b)
	e.writeSenders(b)
	e.writeWaits(b)
}

// save writes a row at the end. A row that several moves of one SQL transaction save is written once.
func (e *effects) save(q *QueueRow) { e.saved = append(e.saved, q) }

// keep saves a row, or removes that of a queue without a name whose only transaction has ended.
func (e *effects) keep(q *QueueRow) {
	if q.Named || q.Phase != outbox.PhaseIdle {
		e.save(q)
	} else {
		e.removed = append(e.removed, q.ID)
	}
}

// once leaves each row once: a join with a doubled key updates once, silently.
func once(rows []*QueueRow) []*QueueRow {
	if len(rows) < 2 {
		return rows
	}
	seen := make(map[int64]bool, len(rows))
	return slices.DeleteFunc(rows, func(q *QueueRow) bool {
		was := seen[q.ID]
		seen[q.ID] = true
		return was
	})
}

// writeSenders writes what holds lanes, the gates, and which sender is bound to which queue.
func (e *effects) writeSenders(b *pgx.Batch) {
	for lane, queue := range e.holders {
		b.Queue(`UPDATE postern.lane SET holder = $2
			WHERE lane_id = (SELECT coalesce(n.shared, n.lane_id) FROM postern.lane n
					WHERE n.lane_id = $1 AND n.kind = 'exclusive')
				AND holder IS NULL`, lane, queue)
	}
	if len(e.holdersFree) > 0 {
		b.Queue(`UPDATE postern.lane SET holder = NULL WHERE holder = ANY ($1)`, e.holdersFree)
	}
	for _, g := range e.sortedGates() {
		e.writeGate(b, g)
	}
	if len(e.senderFree) > 0 {
		c := db.Columns{N: len(e.senderFree)}
		for _, f := range e.senderFree {
			c.Add(f.Sender, db.Nullable(f.Nonce), f.Block, db.Nullable(f.Until), f.Why)
		}
		b.Queue(`UPDATE postern.sender s SET queue_id = NULL, bound_since = NULL, last_used_at = $6,
				last_nonce = coalesce(f.nonce, s.last_nonce),
				blocked_until = CASE WHEN f.block THEN 'infinity' ELSE greatest(s.blocked_until, f.until) END,
				block_reason = CASE WHEN f.block THEN 'abandoned' WHEN f.until > coalesce(s.blocked_until, '-infinity') THEN f.why ELSE s.block_reason END
			FROM ROWS FROM (unnest($1::int[]), unnest($2::text[]), unnest($3::boolean[]), unnest($4::timestamptz[]), unnest($5::text[])) f(sender_id, nonce, block, until, why)
			WHERE s.sender_id = f.sender_id`, c.Args(e.now)...)
	}
	if len(e.senderBind) > 0 {
		ids, queues := make([]int32, 0), make([]int64, 0)
		for s, q := range e.senderBind {
			ids, queues = append(ids, s), append(queues, q)
		}
		b.Queue(`UPDATE postern.sender s SET queue_id = n.queue_id, bound_since = $3
			FROM ROWS FROM (unnest($1::int[]), unnest($2::bigint[])) n(sender_id, queue_id) WHERE s.sender_id = n.sender_id`,
			ids, queues, e.now)
	}
}

// writeGate opens or closes the gate of a sender or of a type, or lets the next probe out.
func (e *effects) writeGate(b *pgx.Batch, g gate) {
	switch {
	case g.Open && g.Sender != 0:
		b.Queue(`UPDATE postern.sender
			SET gate_failures = 0, gate_reason = '', gate_since = NULL, gate_node = '',
				blocked_until = NULL, block_reason = ''
			WHERE sender_id = $1 AND block_reason = 'worker_unreachable'`, g.Sender)
	case g.Open:
		b.Queue(`UPDATE postern.dispatcher
			SET gate_failures = 0, gate_until = NULL, gate_reason = '', gate_probing = false,
				gate_since = NULL, gate_node = ''
			WHERE dispatcher_id = $1`, g.Dispatcher)
	case g.Pass:
		b.Queue(`UPDATE postern.dispatcher
			SET gate_until = $2, gate_probing = false
			WHERE dispatcher_id = $1 AND gate_probing`, g.Dispatcher, e.now)
	case g.Sender != 0:
		b.Queue(`UPDATE postern.sender SET gate_failures = gate_failures + 1, gate_reason = $4,
				gate_since = coalesce(gate_since, $2), gate_node = `+nodeName+`,
				blocked_until = greatest(`+gateUntil+`, $3), block_reason = 'worker_unreachable'
			WHERE sender_id = $1 AND (blocked_until IS NULL OR blocked_until <= $2 OR block_reason = 'worker_unreachable')`,
			g.Sender, e.now, db.Nullable(g.Until), g.Why, g.Node)
	default: // several calls that failed in the same while count once
		b.Queue(`UPDATE postern.dispatcher
			SET gate_failures = gate_failures + 1, gate_reason = $4, gate_probing = false,
				gate_since = coalesce(gate_since, $2), gate_node = `+nodeName+`,
				gate_until = greatest(`+gateUntil+`, $3)
			WHERE dispatcher_id = $1 AND (gate_until IS NULL OR gate_until <= $2 OR gate_probing)`,
			g.Dispatcher, e.now, db.Nullable(g.Until), g.Why, g.Node)
	}
}

// sortedGates returns each gate once, in one order for all transactions, since they share these rows.
func (e *effects) sortedGates() []gate {
	by := func(a, b gate) int {
		return cmp.Or(cmp.Compare(a.Dispatcher, b.Dispatcher), cmp.Compare(a.Sender, b.Sender))
	}
	slices.SortStableFunc(e.gates, by)
	return slices.CompactFunc(e.gates, func(a, b gate) bool {
		return by(a, b) == 0 && a.Open == b.Open && a.Pass == b.Pass
	})
}

// nodeName is the name of the node whose call closes a gate.
const nodeName = `coalesce((SELECT n.name FROM postern.node n WHERE n.node_id = $5), '')`

// gateUntil is 1 s doubling to 30 s by the failures so far (S2.9).
const gateUntil = `$2::timestamptz + interval '1 s' * least(30, power(2, least(gate_failures, 5)))`

func (e *effects) writeWaits(b *pgx.Batch) {
	var lanes, eras []int32
	var prios []int16
	var since []time.Time
	var ids []int64
	columns := func(keys []readyKey) {
		lanes, prios, since, ids, eras = nil, nil, nil, nil, nil
		for _, k := range keys {
			lanes, prios, since, ids, eras = append(lanes, k.Lane), append(prios, k.Prio), append(since, k.Since), append(ids, k.Queue), append(eras, k.Era)
		}
	}
	const keys = `unnest($1::int[]), unnest($2::smallint[]), unnest($3::timestamptz[]), unnest($4::bigint[])`
	if columns(e.readyDel); len(ids) > 0 {
		// an array of one stands for its element, so that the table is not read in the order of lanes: see updateText
		b.Queue(`DELETE FROM postern.ready r USING ROWS FROM (`+keys+`) n(lane, prio, since, queue_id)
			WHERE r.lane = ANY (ARRAY[n.lane]) AND (r.prio, r.since, r.queue_id) = (n.prio, n.since, n.queue_id)`, lanes, prios, since, ids)
	}
	if columns(e.readyAdd); len(ids) > 0 {
		b.Queue(`INSERT INTO postern.ready (lane, prio, since, queue_id, era)
			SELECT n.lane, n.prio, n.since, n.queue_id, n.era FROM ROWS FROM (`+keys+`, unnest($5::int[])) n(lane, prio, since, queue_id, era)`,
			lanes, prios, since, ids, eras)
	}
	if len(e.timerDel) > 0 {
		b.Queue(`DELETE FROM postern.timer WHERE queue_id = ANY ($1)`, e.timerDel)
	}
	if len(e.timerSet) > 0 && !twin.Planted("timer_forgotten") {
		ids, due := make([]int64, 0), make([]time.Time, 0)
		said := make([]*string, 0)
		for q, at := range e.timerSet {
			ids, due, said = append(ids, q), append(due, at), append(said, nil)
			if text, heard := e.timerSaid[q]; heard {
				said[len(said)-1] = &text
			}
		}
		b.Queue(`INSERT INTO postern.timer (queue_id, due_at, said)
			SELECT n.queue_id, n.due_at, n.said
			FROM ROWS FROM (unnest($1::bigint[]), unnest($2::timestamptz[]), unnest($3::text[]))
				n(queue_id, due_at, said)
			ON CONFLICT (queue_id) DO UPDATE SET due_at = excluded.due_at, said = coalesce(excluded.said, timer.said)`,
			ids, due, said)
	}
}

// newest is a row by which the commit of these effects can be found again, if they have one.
func (e *effects) newest() db.Acked {
	switch {
	case len(e.accepted) > 0:
		return db.Accepted(e.accepted[0].ID, e.accepted[0].CreatedAt)
	case len(e.outcomes) > 0:
		return db.Ended(e.outcomes[0].ID, e.now)
	case len(e.saved) > 0:
		return db.Leased(e.saved[0].ID, e.saved[0].Fence, e.now)
	}
	return db.Acked{}
}
