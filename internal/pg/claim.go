package pg

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/twin"
)

// Room says how much a node can take: calls in flight over all types, and per dispatcher.
type Room struct {
	Total int
	// Slots returns how many more calls of a dispatcher without senders the node may have in flight.
	Slots func(*Dispatcher) int
	// Leaves says whether the node leaves the calls of a dispatcher to others for a while; nil: it leaves none.
	Leaves func(*Dispatcher) bool
	// Shuns lists the senders with an address of their own whose calls it leaves to others; nil: there are none.
	Shuns func() []int32
}

// leaves says whether the node leaves the calls of a dispatcher to others.
func (r Room) leaves(d *Dispatcher) bool { return r.Leaves != nil && r.Leaves(d) }

// shuns lists the senders whose calls the node leaves to others.
func (r Room) shuns() []int32 {
	if r.Shuns == nil {
		return nil
	}
	return r.Shuns()
}

// freeSendersSQL locks free senders of a pool, or the one that a head names: that one is taken also while it is
// drained. Those of $5 are left to other nodes.
var freeSendersSQL = twin.SQL("sender_of_two_queues",
	`SELECT s.sender_id, s.account, s.worker_url, s.gate_failures > 0 FROM postern.sender s
	WHERE (s.pool_id = $1 AND NOT s.draining OR s.sender_id = $2) AND s.queue_id IS NULL AND NOT s.paused
		AND (s.blocked_until IS NULL OR s.blocked_until <= coalesce($4::timestamptz, clock_timestamp()))
		AND NOT EXISTS (SELECT FROM postern.pool p WHERE p.pool_id = s.pool_id AND p.paused)
		AND s.removed_at IS NULL AND s.sender_id <> ALL (coalesce($5::int[], '{}'))
	ORDER BY s.last_used_at NULLS FIRST, s.sender_id LIMIT $3 FOR UPDATE OF s SKIP LOCKED`,
	" AND s.queue_id IS NULL", "")

type freeSender struct {
	id           int32
	account, url string
	probe        bool
	attributes   json.RawMessage // for its lease; nil: none, or not read
	version      int64           // for its lease, too
}

type pick struct {
	q      *QueueRow
	sender *freeSender
	lane   *openLane
	d      *Dispatcher
}

// Claim leases ready queues, together with free senders where their types need one, to a live node: as
// many as fit into room. The leases are durable when it returns; the caller calls their workers.
//
// It never waits for a lock: queues, senders, exclusive lanes and the node's own row are locked with
// SKIP LOCKED, and ready rows are written only under the lock of their queue. Why no queue has two
// owners: node_id is compared in the locked row. Why no sender has two queues: queue_id is compared in
// the locked row, and its key is unique. Why a buried node takes nothing: the key of its row is locked, so
// that a bury that has committed is seen, and one that has not waits for this commit and releases what
// was claimed here. Why nothing is taken that is in quarantine: see EnterQuarantine.
func (s *Store) Claim(ctx context.Context, node Node, room Room) (leases []*Lease, more bool, err error) {
	if s.QuarantineView().Whole() {
		return nil, false, nil
	}
	w := &laneWalk{}
	for range 8 { // the lanes left then are the next claim's
		var again bool
		if leases, more, again, err = s.claimOnce(ctx, node, room, w); !again {
			break
		}
	}
	return leases, more, err
}

// claimOnce is Claim; again says that nothing was leased, and another look may find something: the node's row was
// locked or dead, or there are more lanes than one look walks through.
func (s *Store) claimOnce(ctx context.Context, node Node, room Room, w *laneWalk) (
	leases []*Lease, more, again bool, err error,
) {
	var c *claim
	var load *loader
	err = s.Run(ctx, func(t *db.Txn) error {
		more, again, load = false, false, nil
		c = &claim{s: s, e: newEffects(s), node: node, room: room, t: t, quarantine: s.QuarantineView()}
		if err := c.openLanes(ctx); err != nil {
			return err
		}
		again = w.further(c.view.behind, c.cut)
		w.left = w.left || c.left
		if more = w.left || again; len(c.lanes) == 0 {
			return t.Rollback(ctx)
		}
		if err := c.lock(ctx); err != nil {
			return err
		}
		w.left = c.match() || w.left
		more = w.left || again
		if len(c.picks) == 0 || !c.alive {
			again = again || len(c.picks) > 0
			return t.Rollback(ctx)
		}
		load = newLoader(s, nil)
		return c.commit(ctx, load)
	})
	if load != nil {
		err = doubtful(node, load.rows, err)
	}
	if err == nil && load != nil {
		leases, err = c.leases(ctx, load)
	}
	if again && err == nil && load == nil && !c.alive {
		time.Sleep(2 * time.Millisecond) // somebody looks whether the node is to be buried
	}
	return leases, more, again && err == nil && load == nil, err
}

// laneWalk is what the looks of one claim have walked through, where there are more lanes than one look takes.
type laneWalk struct {
	first         int32 // behind it the first look began
	begun, turned bool  // turned: the end was reached, and the walk begins anew
	left          bool  // in one of the looks something waits for a sender, or for room
}

// further notes that a look walked from one lane to another, where 0 is the beginning and the end, and says whether
// there are lanes that none of these looks has seen.
func (w *laneWalk) further(from, cut int32) bool {
	if !w.begun {
		w.begun, w.first = true, from
	}
	if w.turned {
		return cut != 0 && cut < w.first
	}
	w.turned = cut == 0
	return cut != 0 || w.first != 0
}

type claim struct {
	s     *Store
	t     *db.Txn
	e     *effects
	node  Node
	room  Room
	alive bool
	left  bool  // a queue waits for a sender that is not free
	cut   int32 // the lane to which the walk came; 0 is the end
	view  laneView

	quarantine *Quarantined // by which all of the claim is decided

	lanes      []*openLane
	candidates map[int32][]*QueueRow
	senders    map[int32][]*freeSender // by pool
	pinned     map[int32]*freeSender   // by sender
	held       map[int32]bool          // exclusive lanes that we could lock, or what is held in their place
	probing    map[int32]bool          // dispatchers whose one probe is ours
	picks      []pick
}

// openLanes finds the lanes that have work. In the same round trip it locks the queues of the lanes that had work when
// this process last claimed; where they still have, lock need not ask for them again.
func (c *claim) openLanes(ctx context.Context) error {
	c.candidates = map[int32][]*QueueRow{}
	b := &pgx.Batch{}
	c.view = c.s.fronts.view(c.s.Clock() != nil)
	c.findLanes(b)
	b.Queue(liveNodeSQL, c.node.ID, c.node.Epoch, c.quarantine.number).
		Query(func(rows pgx.Rows) error {
			c.alive = rows.Next()
			rows.Close()
			return rows.Err()
		})
	if lately := c.s.lately.Load(); lately != nil {
		for _, l := range *lately {
			if d := c.e.view.byID[l.dispatcher]; d != nil && c.takes(d) {
				c.lockLane(b, l, c.view.of(l.id), min(c.room.Total, c.room.Slots(d)))
			}
		}
	}
	c.s.ReadNow(b, &c.e.now)
	if err := c.t.Send(ctx, b); err != nil {
		return err
	}
	c.s.fronts.seen(c.view, c.lanes, c.cut, c.e.now)
	var known []*openLane
	for _, l := range c.lanes {
		if _, known := c.s.Conf.shared.Load(l.id); l.kind != "exclusive" && !known {
			c.s.Conf.shared.Store(l.id, laneKey{Dispatcher: l.dispatcher, Pool: l.pool, Sender: l.sender})
		}
		if l.kind != "resume" {
			d := c.e.view.byID[l.dispatcher]
			if d == nil {
				return &dispatcherMissing{s: c.s}
			}
			if !c.takes(d) {
				continue
			}
			if l.needs() && l.kind != "exclusive" && l.free == 0 {
				c.left = true
				continue
			}
		}
		known = append(known, l)
	}
	c.lanes = known
	var lately []*openLane
	for _, l := range known {
		if l.plain() && len(lately) < 8 {
			lately = append(lately, l)
		}
	}
	if len(lately) > 0 {
		c.s.lately.Store(&lately)
	}
	return nil
}

// takes says whether the node may take what stands in lanes of a dispatcher.
func (c *claim) takes(d *Dispatcher) bool {
	return c.node.Takes(d.Type) && !c.room.leaves(d) && !c.quarantine.holds(d.ContextID, d.Type)
}

// plain says whether nothing but room is needed to take what stands in the lane.
func (l *openLane) plain() bool {
	return l.kind != "resume" && l.kind != "exclusive" && l.kind != "sender" && l.pool == 0 && l.poolOf == 0 && !l.probe
}

// lock takes what might be claimed: more than can be used, so that one round trip serves all lanes.
func (c *claim) lock(ctx context.Context) error {
	c.senders = map[int32][]*freeSender{}
	c.pinned, c.held, c.probing = map[int32]*freeSender{}, map[int32]bool{}, map[int32]bool{}
	b := &pgx.Batch{}
	for _, l := range c.lanes {
		if _, locked := c.candidates[l.id]; locked && l.plain() {
			continue
		}
		n := c.room.Total
		switch {
		case l.kind == "resume":
		case l.kind == "exclusive":
			n = min(n, 8)
			b.Queue(`SELECT FROM postern.lane
				WHERE lane_id = $1 AND holder IS NULL
				FOR UPDATE SKIP LOCKED`, l.hold).Query(func(rows pgx.Rows) error {
				c.held[l.hold] = rows.Next()
				rows.Close()
				return rows.Err()
			})
		case l.probe:
			n = min(n, probesSeen)
		case l.kind == "sender":
			n = 1
		case l.poolOf != 0:
			n = min(n, l.free)
		case l.pool == 0:
			n = min(n, c.room.Slots(c.e.view.byID[l.dispatcher]))
		}
		if n <= 0 {
			continue
		}
		if l.probe { // its row will be written, so it is locked as all is, and looked at again behind the lock
			b.Queue(`SELECT FROM postern.dispatcher WHERE dispatcher_id = $1 AND gate_failures > 0
				AND (gate_until IS NULL OR gate_until <= coalesce($2::timestamptz, clock_timestamp())) FOR UPDATE SKIP LOCKED`, l.dispatcher, c.s.Clock()).
				Query(func(rows pgx.Rows) error {
					c.probing[l.dispatcher] = rows.Next()
					rows.Close()
					return rows.Err()
				})
		}
		c.lockLane(b, l, l.front, n)
	}
	if b.Len() == 0 {
		return nil
	}
	c.s.ReadNow(b, &c.e.now)
	if err := c.t.Send(ctx, b); err != nil {
		return err
	}
	return c.lockSenders(ctx)
}

// lockSenders locks free senders for the candidates, as many of each pool as there are candidates.
func (c *claim) lockSenders(ctx context.Context) error {
	pools, pins := map[int32]int{}, map[int32]bool{}
	for _, l := range c.lanes {
		for _, q := range c.candidates[l.id] {
			switch {
			case l.kind == "resume": // it has its sender
			case q.Pin != 0:
				pins[q.Pin] = true
			case l.poolOf == 0:
			case q.Pool != 0:
				pools[q.Pool]++
			default:
				pools[l.poolOf]++
			}
		}
	}
	b, shuns := &pgx.Batch{}, c.room.shuns()
	for _, pool := range sortedIDs(pools) {
		b.Queue(freeSendersSQL, pool, 0, pools[pool], c.s.Clock(), shuns).Query(func(rows pgx.Rows) error {
			return scanSenders(rows, func(f *freeSender) { c.senders[pool] = append(c.senders[pool], f) })
		})
	}
	for _, pin := range sortedIDs(pins) {
		b.Queue(freeSendersSQL, 0, pin, 1, c.s.Clock(), shuns).Query(func(rows pgx.Rows) error {
			return scanSenders(rows, func(f *freeSender) { c.pinned[pin] = f })
		})
	}
	if b.Len() == 0 {
		return nil
	}
	c.s.ReadNow(b, &c.e.now)
	return c.t.Send(ctx, b)
}

func sortedIDs[V any](m map[int32]V) []int32 {
	var ids []int32
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func scanSenders(rows pgx.Rows, add func(*freeSender)) error {
	for rows.Next() {
		f := &freeSender{}
		to := []any{&f.id, &f.account, &f.url, &f.probe}
		if len(rows.FieldDescriptions()) > len(to) {
			to = append(to, &f.attributes, &f.version)
		}
		if err := rows.Scan(to...); err != nil {
			return err
		}
		add(f)
	}
	return rows.Err()
}

// match pairs queues with senders, one candidate of each lane in turn, so that no lane starves another. The lane
// whose first candidate waits longest comes first: a queue that is pinned to a sender (S2.9) competes for it with all
// queues that any sender of its pool may take.
func (c *claim) match() (left bool) {
	taken := map[int32]bool{} // senders, by id; exclusive lanes, by the negative id
	for _, l := range c.lanes {
		if l.probe {
			slices.SortStableFunc(c.candidates[l.id], byProbe)
		}
	}
	slices.SortStableFunc(c.lanes, func(a, b *openLane) int { return c.waits(a).Compare(c.waits(b)) })
	for round := 0; len(c.picks) < c.room.Total; round++ {
		more := false
		for _, l := range c.lanes {
			list := c.candidates[l.id]
			if round >= len(list) || len(c.picks) >= c.room.Total {
				continue
			}
			more = true
			p := pick{q: list[round], lane: l, d: c.e.view.byID[l.dispatcher]}
			switch {
			case !c.s.whole(p.q):
				continue
			case l.kind == "resume":
			case l.probe && !c.probing[l.dispatcher]:
				continue
			case l.kind == "exclusive" && (!c.held[l.hold] || taken[-l.hold]):
				continue
			case l.poolOf != 0, p.q.Pin != 0:
				if p.sender = c.sender(p.q, l, taken); p.sender == nil {
					left = true
					continue
				}
				taken[p.sender.id] = true
			}
			if l.kind == "exclusive" {
				taken[-l.hold] = true
			}
			c.probing[l.dispatcher] = false // it has its one probe
			c.picks = append(c.picks, p)
		}
		if !more {
			return left
		}
	}
	return true
}

// waits is since when the first candidate of a lane stands there.
func (c *claim) waits(l *openLane) (since time.Time) {
	if list := c.candidates[l.id]; len(list) > 0 {
		since = list[0].EnteredAt
	}
	return since
}

func (c *claim) sender(q *QueueRow, l *openLane, taken map[int32]bool) *freeSender {
	if q.Pin != 0 {
		if f := c.pinned[q.Pin]; f != nil && !taken[f.id] {
			return f
		}
		return nil
	}
	pool := q.Pool
	if pool == 0 {
		pool = l.poolOf
	}
	for _, f := range c.senders[pool] {
		if !taken[f.id] {
			return f
		}
	}
	return nil
}

// commit writes the leases and commits. The bodies are read by a statement behind the locks: the head may be
// newer than the snapshot that locked it. All of it is one round trip.
func (c *claim) commit(ctx context.Context, load *loader) error {
	b := &pgx.Batch{}
	c.write(b, load)
	if twin.Planted("effect_before_intent") {
		if err := c.t.Send(ctx, b); err != nil {
			return err
		}
		return c.t.Rollback(ctx)
	}
	c.t.Newest = c.e.newest()
	return c.t.Commit(ctx, b)
}

func (c *claim) write(b *pgx.Batch, load *loader) {
	for _, p := range c.picks {
		q := p.q
		c.e.leave(q)
		c.e.own(q, c.node)
		if p.lane.kind == "resume" && twin.Planted("attempt_anew_on_takeover") {
			q.Attempt++
		}
		if p.lane.kind != "resume" {
			if p.sender != nil {
				q.Sender = p.sender.id
				c.e.senderBind[q.Sender] = q.ID
			}
			c.e.dispatch(q)
			if p.lane.kind == "exclusive" {
				b.Queue(`UPDATE postern.lane SET holder = $2 WHERE lane_id = $1`, p.lane.hold, q.ID)
			}
			if p.lane.probe {
				b.Queue(`UPDATE postern.dispatcher
					SET gate_until = $2::timestamptz + interval '30 s', gate_probing = true
					WHERE dispatcher_id = $1`, p.lane.dispatcher, c.e.now)
			}
		}
		c.e.saved = append(c.e.saved, q)
		load.rows = append(load.rows, q)
		load.resumed[q.ID] = p.lane.kind == "resume"
	}
	c.e.write(b)
	load.queue(b)
}

// leases makes what was taken into leases. One that cannot be made, which takes rows that were deleted by hand,
// is given up again.
func (c *claim) leases(ctx context.Context, load *loader) (leases []*Lease, err error) {
	var left []Fenced
	for _, p := range c.picks {
		l, err := load.lease(p.q, c.e.now)
		var typ *dispatcherMissing
		if errors.As(err, &typ) { // another process has just made it
			if err = c.s.Refresh(ctx); err == nil {
				l, err = load.lease(p.q, c.e.now)
			}
		}
		if err != nil {
			if body := (*bodyMissing)(nil); errors.As(err, &body) {
				c.s.leaveOut(body)
			}
			left = append(left, Fenced{p.q.ID, p.q.Fence})
			continue
		}
		l.Resume = p.lane.kind == "resume"
		l.Probe, l.ProbeSender = p.lane.probe, p.sender != nil && p.sender.probe
		leases = append(leases, l)
		if len(l.ahead) > 0 && twin.Planted("next_leased_beside") {
			next := *l
			next.Task, next.ahead = l.ahead[0], nil
			leases = append(leases, &next)
		}
	}
	if len(left) > 0 {
		_, _, err := c.s.GiveUp(ctx, c.node, left)
		return leases, err
	}
	return leases, nil
}
