package work

import (
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/pg"
)

// holdings says which queues the process works on, each under its fence, so that they can be compared with what the
// rows say is its own. A queue under a fence is held from when a lease of it is counted until its flight has ended;
// what a settlement hands back to the flight has the same fence, and is the same holding. It is guarded by a mutex
// of its own, which is taken where a flight begins or ends and nowhere in between.
//
// Why nothing that is held is ever handed back, and nothing that was handed back is ever called: hold and condemn
// exclude each other. Under the mutex a lease is either held first, and then condemn leaves it out, or condemned
// first, and then hold refuses it, before any call. A pair of queue and fence is leased once, since each lease
// raises the fence; so what was refused cannot come back, and what has ended cannot begin again. No time is part of
// this: it holds of a process that stood still for hours, too, before it read the answer of its claim.
//
// Why everything that was lost is found: a row that says for good that a queue is ours is read by the next walk
// over the table. If a flight has it, it is not lost. Otherwise whatever leased it had begun before the row could
// be read, so its ticket is no younger than the youngest that there was then; and each ticket ends when what it
// leased is counted. Once all of those tickets have ended and it is still not held, no flight will ever have it. A
// ticket that does not end, since its commit is waited for on a connection that answers nothing, is waited for no
// longer than lateAfter: what it leased is condemned, and its leases are refused should they come. Until then
// nothing is handed back that a healthy commit is about to bring, as its worker would have to be asked about a call
// that was never made.
type holdings struct {
	mu   sync.Mutex
	held map[pg.Fenced]*holding
	gone map[pg.Fenced]uint64 // handed back, or about to be: the youngest ticket at that time
	last uint64               // the youngest ticket
	open []uint64             // tickets that have not ended, the oldest first
}

// holding is a queue that a flight works on.
type holding struct {
	lease *pg.Lease
	since time.Time
	freed bool // its room for a call was given to others, since the queue is not the node's any more
}

func newHoldings() *holdings {
	return &holdings{held: map[pg.Fenced]*holding{}, gone: map[pg.Fenced]uint64{}}
}

func fenced(l *pg.Lease) pg.Fenced { return pg.Fenced{Queue: l.ID().Queue, Fence: l.Fence} }

// begin gives a ticket to what may lease queues, before its statement.
func (h *holdings) begin() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	h.open = append(h.open, h.last)
	return h.last
}

// end takes a ticket back: the leases of its commit are held. It forgets queues that were handed back before the
// oldest ticket that is left, since their leases can come no more.
func (h *holdings) end(ticket uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.Index(h.open, ticket); i >= 0 {
		h.open = slices.Delete(h.open, i, i+1)
	}
	for f, youngest := range h.gone {
		if h.over(youngest) {
			delete(h.gone, f)
		}
	}
}

// over says whether all tickets up to one have ended. The mutex is held.
func (h *holdings) over(ticket uint64) bool { return len(h.open) == 0 || h.open[0] > ticket }

// hold counts leases as held and returns them, but for those that have been handed back.
func (h *holdings) hold(leases []*pg.Lease) (held, refused []*pg.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held = leases
	now := time.Now()
	for i, l := range leases {
		if _, gone := h.gone[fenced(l)]; gone {
			if refused == nil {
				held = slices.Clone(leases[:i])
			}
			refused = append(refused, l)
			continue
		}
		if refused != nil {
			held = append(held, l)
		}
		h.held[fenced(l)] = &holding{lease: l, since: now}
	}
	return held, refused
}

// let ends a holding, and says whether its room was given to others before.
func (h *holdings) let(l *pg.Lease) (freed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if x := h.held[fenced(l)]; x != nil {
		freed = x.freed
	}
	delete(h.held, fenced(l))
	return freed
}

// long lists what is held for longer than d under an epoch of the node, and whose room is its own.
func (h *holdings) long(d time.Duration, epoch int32) (list []pg.Fenced) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for f, x := range h.held {
		if !x.freed && x.lease.Epoch == epoch && time.Since(x.since) > d {
			list = append(list, f)
		}
	}
	return list
}

// free notes that the room of a holding goes to others, and returns its lease; nil where it has ended, or was freed
// before.
func (h *holdings) free(f pg.Fenced) *pg.Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	x := h.held[f]
	if x == nil || x.freed {
		return nil
	}
	x.freed = true
	return x.lease
}

// unheld returns the rows that are not held, and the ticket that has to end before they are lost. The rows were read
// before.
func (h *holdings) unheld(rows []pg.Fenced) (loose []pg.Fenced, ticket uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range rows {
		if _, held := h.held[f]; !held {
			loose = append(loose, f)
		}
	}
	return loose, h.last
}

// condemn says of what is loose whether it is held after all, whether a ticket may still bring its lease, or, where
// neither is so or it was late, that it is to be handed back now: then no lease of it is held any more.
func (h *holdings) condemn(loose map[pg.Fenced]sight, late func(sight) bool) (list []pg.Fenced) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for f, s := range loose {
		if _, held := h.held[f]; held {
			delete(loose, f)
		} else if h.over(s.ticket) || late(s) {
			list = append(list, f)
			if !h.over(h.last) {
				h.gone[f] = h.last
			}
		}
	}
	return list
}
