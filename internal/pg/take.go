package pg

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Taker is the part of this process that calls workers, where it has one. A post to an empty queue is taken at once:
// the commit of the post leases its queue to this node, instead of putting it into a lane until a claim finds it.
// That saves a commit, four round trips and the ready row; on an idle machine it is nearly half of the way from a
// post to its worker.
//
// Why such a queue has no second owner: it is idle under the lock of its row, and an idle queue has no ready row that
// a claim could find. Why a buried node takes nothing: as in Claim. Why nothing goes out whose type is paused, or
// whose worker cannot be reached: openTypesSQL reads both in the same SQL transaction, as a claim does. Why no
// transaction starves that waits for room: Reserve gives none where the last claim may have left one behind. A type
// with senders, or an exclusive one, is left to claims.
type Taker interface {
	// Taking is the node that takes; false: it takes nothing now, as its lease is not sure, it stops, or none of
	// River's jobs is at work in it.
	Taking() (Node, bool)
	// Begin says that a commit follows that may lease queues. End says that Start or Doubt was told of these, or that
	// there are none. Between the two the rows of queues are not compared with what the process holds.
	Begin() (ticket uint64)
	End(ticket uint64)
	// Reserve keeps room for one call, and is followed by Release or Start; false: there is none.
	Reserve(*Dispatcher) bool
	// Release gives back the room for one call.
	Release(*Dispatcher)
	// Start begins the calls of leases that are durable, and for which room is reserved.
	Start([]*Lease)
	// Doubt is told of queues that the node may own or not, since the end of a commit is unknown.
	Doubt(*Doubtful)
}

// Take lets t take the posts from now on; nil: they wait for claims.
func (s *Store) Take(t Taker) {
	if s.taker.Store(nil); t != nil {
		s.taker.Store(&t)
	}
}

// liveNodeSQL finds a node under its epoch, and keeps the epoch from ending before the commit. The epoch is a part of
// a key: a statement that ends it waits for the holder of the key, or the holder sees that it has ended. A heartbeat
// changes no key and waits for nothing. The number of the quarantine is a part of the key, too (see EnterQuarantine):
// a node is not found where its process knows the number $3 and has to know a later one.
const liveNodeSQL = `SELECT FROM postern.node WHERE node_id = $1 AND epoch = $2 AND dead_at IS NULL AND quarantine <= $3 FOR KEY SHARE SKIP LOCKED`

// openTypesSQL is liveNodeSQL for those of the dispatchers $3 whose transactions may go out at once.
const openTypesSQL = `SELECT d.dispatcher_id FROM postern.node n CROSS JOIN postern.dispatcher d JOIN postern.context c ON c.context_id = d.context_id
	WHERE n.node_id = $1 AND n.epoch = $2 AND n.dead_at IS NULL AND n.quarantine <= $4 AND NOT n.draining AND d.dispatcher_id = ANY ($3)
		AND NOT d.paused AND d.removed_at IS NULL AND d.pool_id IS NULL AND d.gate_failures = 0 AND d.gate_until IS NULL AND NOT c.paused
	FOR KEY SHARE OF n SKIP LOCKED`

// taking is what an ingest takes along.
type taking struct {
	s     *Store
	by    Taker // nil: this process takes nothing
	node  Node
	holds bool           // the one place among the ingests of this process
	under uint64         // the ticket meanwhile
	open  map[int32]bool // dispatchers
	taken []taken
	load  *loader
	done  bool // it is durable

	quarantine *Quarantined
}

type taken struct {
	q *QueueRow
	d *Dispatcher
}

// taking begins with nothing taken.
func (s *Store) taking(ctx context.Context) (t taking) {
	if by := s.taker.Load(); by != nil && db.JointOf(ctx) == nil {
		if node, ok := (*by).Taking(); ok {
			t.s, t.by, t.node, t.open, t.quarantine = s, *by, node, map[int32]bool{}, s.QuarantineView()
		}
	}
	return t
}

// takeable says whether what a type needs is room, and nothing else.
func (d *Dispatcher) takeable() bool {
	return d.PoolID == 0 && (d.Exclusive == "" || d.Exclusive == "none")
}

// readOpen adds to b a query for the types of subs that may be taken now. One ingest of a process takes at a time: if
// several held the key of its node without a gap, the node could not be buried.
func (t *taking) readOpen(b *pgx.Batch, view *confView, subs []*Submission) {
	if t.by == nil {
		return
	}
	var ids []int32
	for _, sub := range subs {
		d := view.dispatcherOf(sub.ContextID, sub.Type)
		if d != nil && d.takeable() && sub.Sender == "" && sub.NotBefore.IsZero() && !slices.Contains(ids, d.ID) &&
			!t.quarantine.holds(d.ContextID, d.Type) {
			ids = append(ids, d.ID)
		}
	}
	if len(ids) == 0 || !t.s.takes.CompareAndSwap(false, true) {
		return
	}
	t.holds, t.under = true, t.by.Begin()
	b.Queue(openTypesSQL, t.node.ID, t.node.Epoch, ids, t.quarantine.number).Query(func(rows pgx.Rows) error {
		var id int32
		_, err := pgx.ForEachRow(rows, []any{&id}, func() error { t.open[id] = true; return nil })
		return err
	})
}

// take leases a queue that has just become ready to the node, if there is a place for it.
func (t *taking) take(e *effects, q *QueueRow, d *Dispatcher) {
	if t.by == nil || !t.open[d.ID] || !d.takeable() || q.Phase != outbox.PhaseReady || q.Paused || q.Marks > 0 || q.Pin != 0 || q.Pool != 0 || !t.by.Reserve(d) {
		return
	}
	e.readyAdd = slices.DeleteFunc(e.readyAdd, func(k readyKey) bool { return k.Queue == q.ID })
	e.own(q, t.node)
	e.dispatch(q)
	t.taken = append(t.taken, taken{q, d})
}

// read adds to b the reading of what was taken, as it was stored. The tails of its queues are known by then.
func (t *taking) read(b *pgx.Batch, s *Store) {
	if len(t.taken) == 0 {
		return
	}
	t.load = newLoader(s, nil)
	for _, n := range t.taken {
		t.load.rows = append(t.load.rows, n.q)
	}
	t.load.queue(b)
}

// end calls for what was taken, if that is durable, and gives the places back otherwise.
func (t *taking) end(now time.Time, err error) {
	if t.holds {
		t.s.takes.Store(false)
		defer t.by.End(t.under)
	}
	doubt := &Doubtful{error: err, Node: t.node}
	var leases []*Lease
	for _, n := range t.taken {
		if t.done {
			if l, broken := t.load.lease(n.q, now); broken == nil {
				leases = append(leases, l)
				continue
			}
		}
		if t.by.Release(n.d); t.done || fault.CodeOf(err) == "commit_unknown" {
			doubt.Queues = append(doubt.Queues, Fenced{n.q.ID, n.q.Fence})
		}
	}
	if len(leases) > 0 {
		t.by.Start(leases)
	}
	if t.taken, t.holds = nil, false; len(doubt.Queues) > 0 {
		t.by.Doubt(doubt)
	}
}
