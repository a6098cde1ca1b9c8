package work

import (
	"errors"

	"github.com/postern-dev/postern/internal/pg"
)

// seats says which part of the room for calls posts may take. A claim that is under way has booked half of what was
// free before, or all where somebody is known to wait; and there are none where somebody may wait who was there
// first, so that a stream of posts does not overtake what claims would find. It is guarded by the mutex of its
// engine.
type seats struct {
	booked  booking        // by a claim; of nothing if none is under way
	full    bool           // others may wait for room of any kind
	crowded map[int32]bool // others may wait for room of these dispatchers
	closed  bool           // the engine waits for its last calls
}

type booking struct {
	total int
	slots func(*pg.Dispatcher) int
}

func half(n int) int { return max(0, n+1) / 2 }

// book makes room for a claim, which ends with booked.
func (e *Engine) book() pg.Room {
	e.mu.Lock()
	defer e.mu.Unlock()
	room := e.free()
	slots := room.Slots
	part := half
	if e.more.Load() { // halves of halves would only make more claims
		part = func(n int) int { return n }
	}
	b := booking{part(room.Total), func(d *pg.Dispatcher) int { return part(slots(d)) }}
	e.seats = seats{booked: b, crowded: map[int32]bool{}, closed: e.seats.closed}
	room.Total = b.total
	room.Slots = func(d *pg.Dispatcher) int {
		n := b.slots(d)
		if n == 0 { // what stands there is left behind
			e.mu.Lock()
			defer e.mu.Unlock()
			e.seats.crowded[d.ID] = true
		}
		return n
	}
	return room
}

// booked ends the booking of a claim, whose leases have been launched. Where they fill it, or nobody knows, it may
// have left somebody behind.
func (e *Engine) booked(leases []*pg.Lease, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &e.seats
	s.full = s.full || err != nil || len(leases) >= s.booked.total
	n := map[int32]int{}
	for _, l := range leases {
		if n[l.Dispatcher.ID]++; n[l.Dispatcher.ID] >= s.booked.slots(l.Dispatcher) {
			s.crowded[l.Dispatcher.ID] = true
		}
	}
	s.booked = booking{}
}

// shut gives posts no seats until the next claim.
func (e *Engine) shut() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seats.full = true
}

// waits says whether somebody may wait for a place among the calls of a dispatcher.
func (e *Engine) waits(dispatcher int32) bool {
	return e.more.Load() || e.seats.full || e.seats.crowded[dispatcher]
}

// Taking, Begin, End, Seat, Rise, Fly and Doubt are pg.Taker.
func (e *Engine) Taking() (pg.Node, bool) {
	return *e.node.Load(), e.carried() && e.trusted() && !e.stopping.Load() && !e.draining.Load()
}

// Seat keeps a place. Whoever gets none waits for a claim, and those who come after it wait as well.
func (e *Engine) Seat(d *pg.Dispatcher) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, total, slots := &e.seats, e.Concurrency-e.flying, d.Slots-e.byType[d.ID]
	if s.booked.slots != nil {
		total, slots = total-s.booked.total, slots-s.booked.slots(d)
	}
	s.full = s.full || total <= 0
	if slots <= 0 {
		s.crowded[d.ID] = true
	}
	if s.closed || s.full || s.crowded[d.ID] || !e.takes(d.Type) {
		return false
	}
	e.flying++
	e.byType[d.ID]++
	e.flights.Add(1)
	return true
}

func (e *Engine) Rise(d *pg.Dispatcher) {
	e.mu.Lock()
	e.flying--
	e.vacate(d)
	e.mu.Unlock()
	e.flights.Done()
}

// Begin and End are around what may lease queues; see holdings.
func (e *Engine) Begin() uint64     { return e.holdings.begin() }
func (e *Engine) End(ticket uint64) { e.holdings.end(ticket) }

// Fly has flights start for leases that have their places.
func (e *Engine) Fly(taken []*pg.Lease) {
	held, refused := e.holdings.hold(taken)
	for _, l := range refused {
		e.Rise(l.Dispatcher)
	}
	if e.refuse(refused); len(held) > 0 {
		e.hand(e.calls, held)
	}
}

// Doubt has what may have been leased by a commit that nobody knows the end of handed back, as soon as that has one.
func (e *Engine) Doubt(d *pg.Doubtful) {
	e.Log.Warn("nobody knows whether queues were leased to this node: they are given up", "queues", len(d.Queues), "error", d)
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
