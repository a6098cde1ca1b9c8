package work

import (
	"errors"

	"github.com/postern-dev/postern/internal/pg"
)

// postRoom says which part of the room for calls posts may take. A claim that is under way has reserved half of what
// was free before, or all where a transaction is known to wait. Posts get no room where a transaction may wait that was
// there first, so that a stream of posts does not overtake what claims would find. The mutex of the engine guards it.
type postRoom struct {
	reserved reservation    // for the claim that is under way; zero without one
	full     bool           // others may wait for room of any kind
	fullFor  map[int32]bool // others may wait for room of these dispatchers
	closed   bool           // the engine waits for its last calls
}

// reservation is the room that a claim may fill: of all calls, and of those of one dispatcher.
type reservation struct {
	total int
	slots func(*pg.Dispatcher) int
}

// halfOf is half of n, rounded up.
func halfOf(n int) int { return max(0, n+1) / 2 }

// reserveForClaim returns the room that a claim may fill. endReservation ends it.
func (e *Engine) reserveForClaim() pg.Room {
	e.mu.Lock()
	defer e.mu.Unlock()
	room := e.free()
	slots := room.Slots
	part := halfOf
	if e.more.Load() { // halves of halves would only make more claims
		part = func(n int) int { return n }
	}
	b := reservation{part(room.Total), func(d *pg.Dispatcher) int { return part(slots(d)) }}
	e.posts = postRoom{reserved: b, fullFor: map[int32]bool{}, closed: e.posts.closed}
	room.Total = b.total
	room.Slots = func(d *pg.Dispatcher) int {
		n := b.slots(d)
		if n == 0 { // the claim leaves behind what stands there
			e.mu.Lock()
			defer e.mu.Unlock()
			e.posts.fullFor[d.ID] = true
		}
		return n
	}
	return room
}

// endReservation ends the reservation of a claim, whose calls have begun. Where its leases fill the room, or the claim
// failed, a transaction may wait that it left behind: posts get no room until the next claim.
func (e *Engine) endReservation(leases []*pg.Lease, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &e.posts
	s.full = s.full || err != nil || len(leases) >= s.reserved.total
	n := map[int32]int{}
	for _, l := range leases {
		if n[l.Dispatcher.ID]++; n[l.Dispatcher.ID] >= s.reserved.slots(l.Dispatcher) {
			s.fullFor[l.Dispatcher.ID] = true
		}
	}
	s.reserved = reservation{}
}

// refusePosts gives posts no room until the next claim.
func (e *Engine) refusePosts() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.posts.full = true
}

// someoneWaits says whether a transaction may wait for room among the calls of a dispatcher.
func (e *Engine) someoneWaits(dispatcher int32) bool {
	return e.more.Load() || e.posts.full || e.posts.fullFor[dispatcher]
}

// Taking returns the node under which posts may take room now. It and Begin, End, Reserve, Release, Start and Doubt
// make the engine a pg.Taker.
func (e *Engine) Taking() (pg.Node, bool) {
	return *e.node.Load(), e.carried() && e.trusted() && !e.stopping.Load() && !e.draining.Load()
}

// Reserve keeps room for one call. A post that gets none waits for a claim, and so do the posts behind it.
func (e *Engine) Reserve(d *pg.Dispatcher) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, total, slots := &e.posts, e.Concurrency-e.inFlight, e.slots(d)-e.byType[d.ID]
	if s.reserved.slots != nil {
		total, slots = total-s.reserved.total, slots-s.reserved.slots(d)
	}
	s.full = s.full || total <= 0
	if slots <= 0 {
		s.fullFor[d.ID] = true
	}
	if s.closed || s.full || s.fullFor[d.ID] || !e.takes(d.Type) || e.left.has(d) {
		return false
	}
	e.inFlight++
	e.byType[d.ID]++
	e.breakers.begin(d)
	e.flights.Add(1)
	return true
}

// Release gives back the room that Reserve kept.
func (e *Engine) Release(d *pg.Dispatcher) {
	e.mu.Lock()
	e.inFlight--
	e.releaseSlot(d)
	e.mu.Unlock()
	e.flights.Done()
}

// Begin and End are around what may lease queues; see holdings.
func (e *Engine) Begin() uint64     { return e.holdings.begin() }
func (e *Engine) End(ticket uint64) { e.holdings.end(ticket) }

// Start begins a flight for each lease that has its room.
func (e *Engine) Start(taken []*pg.Lease) {
	held, refused := e.holdings.hold(taken)
	for _, l := range refused {
		e.Release(l.Dispatcher)
	}
	if e.refuse(refused); len(held) > 0 {
		e.hand(e.calls, held)
	}
}

// Doubt has queues handed back that a commit with an unknown end may have leased, as soon as that end is known.
func (e *Engine) Doubt(d *pg.Doubtful) {
	e.Log.Warn("it is not known whether queues were leased to this node: they are given up", "queues", len(d.Queues),
		"error", d)
	e.lose(d.Node, d.Queues...)
}

// doubt is Doubt for the error of a claim, or of a round of timers. After any error the rows are looked at.
func (e *Engine) doubt(err error) {
	if d := (*pg.Doubtful)(nil); errors.As(err, &d) {
		e.Doubt(d)
	} else if err != nil {
		e.compareSoon()
	}
}
