package work

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/remotetest"
)

// comparing runs what compares until the test ends, once in so long.
func (c *cell) comparing(every time.Duration) {
	c.compareEvery = every
	ctx, stop := context.WithCancel(c.t.Context())
	over := make(chan struct{})
	go func() { c.compareLoop(ctx); close(over) }()
	c.t.Cleanup(func() { stop(); <-over })
}

// lost claims so much as this node and loses the answer.
func (c *cell) lost(most int) []*pg.Lease {
	c.t.Helper()
	leases, _, err := c.Store.Claim(c.t.Context(), *c.node.Load(), pg.Room{Total: most, Slots: func(*pg.Dispatcher) int { return most }})
	if err != nil || len(leases) != most {
		c.t.Fatalf("%d leases of %d, %v", len(leases), most, err)
	}
	return leases
}

// working carries claims until the test ends.
func (c *cell) working() {
	ctx, stop := context.WithCancel(c.t.Context())
	over := make(chan struct{})
	go func() { c.carry(ctx, time.Hour); close(over) }()
	c.t.Cleanup(func() { stop(); <-over; c.flights.Wait() })
}

// owned are the queues that are the node's by their rows.
func (c *cell) owned() (list []pg.Fenced) {
	c.t.Helper()
	list, _, err := c.Store.Owned(c.t.Context(), *c.node.Load(), 0, 1000)
	if err != nil {
		c.t.Fatal(err)
	}
	return list
}

// A queue that is the node's by its row, and that the process does not know of, goes on: one that was to be called, and
// a delay. A queue in a call stays, however long the call takes. Drained, too.
func TestQueuesThatANodeDoesNotKnowOfGoOn(t *testing.T) {
	t.Parallel()
	for _, drained := range []bool{false, true} {
		t.Run(fmt.Sprintf("drained %t", drained), func(t *testing.T) {
			t.Parallel()
			e := newCell(t)
			ctx := t.Context()
			e.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, UID: "a-0"}, remotetest.Done("ok").Slow(2*time.Second))
			e.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, UID: "a-1"}, remotetest.Fail(503, "later"), remotetest.Done("ok"))
			e.post("a")
			var slow *pg.Lease
			for _, l := range e.lost(10) { // three of them are held
				if n := l.Task.UID; n == "a-0" || n == "a-1" || n == "a-2" {
					if e.launch(ctx, []*pg.Lease{l}); n == "a-0" {
						slow = l
					}
				}
			}
			for woken := 0; woken == 0; time.Sleep(10 * time.Millisecond) { // the delay of a-1 ends, and that answer is lost, too
				w, err := e.Store.Wake(ctx, *e.node.Load(), 10, 10)
				if err != nil {
					t.Fatal(err)
				}
				woken = len(w.Leases)
			}
			if e.drain(drained); drained {
				e.comparing(20 * time.Millisecond)
				for end := time.Now().Add(20 * time.Second); len(e.owned()) > 0; time.Sleep(10 * time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("%v are this node's still", e.owned())
					}
				}
				e.drain(false)
			} else {
				e.comparing(20 * time.Millisecond)
			}
			e.working()
			timers, stop := context.WithCancel(ctx)
			over := make(chan struct{})
			go func() { e.run(timers, e.timers()); close(over) }()
			defer func() { stop(); <-over }()
			e.eventually("30 DONE")
			var fence int64
			if err := e.db.Pool.QueryRow(ctx, `SELECT fence FROM postern.outcome WHERE queue_id = $1 AND seq = 1`, slow.ID().Queue).Scan(&fence); err != nil || fence != slow.Fence {
				t.Errorf("what was in a call was recorded under fence %d, not %d: %v", fence, slow.Fence, err)
			}
			for token, calls := range e.dispatched() {
				if calls > 1 {
					t.Errorf("%s was called %d times", token, calls)
				}
			}
		})
	}
}

// dispatched counts the dispatches of each token.
func (c *cell) dispatched() map[string]int {
	n := map[string]int{}
	for _, call := range c.fake.Calls(remotetest.Match{Op: remotetest.OpDispatch}) {
		n[call.Token]++
	}
	return n
}

// A lease that is on its way is not handed back, for as long as its commit may be under way; after that it is, and
// comes too late.
func TestALeaseThatIsOnItsWayIsLeftToIt(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("late %t", late), func(t *testing.T) {
			t.Parallel()
			e := newCell(t)
			if late {
				e.lateAfter = 50 * time.Millisecond
			}
			e.post("a")
			ticket := e.holdings.begin()
			leases := e.lost(10)
			before := e.owned()
			e.comparing(10 * time.Millisecond)
			if late {
				for end := time.Now().Add(20 * time.Second); len(e.owned()) > 0; time.Sleep(10 * time.Millisecond) {
					if time.Now().After(end) {
						t.Fatal("nothing is handed back of a commit that does not end")
					}
				}
			} else {
				time.Sleep(300 * time.Millisecond)
				if now := e.owned(); !slices.Equal(now, before) {
					t.Fatalf("%v were leased and on their way, and %v are left", before, now)
				}
			}
			held := e.launch(t.Context(), leases)
			e.holdings.end(ticket)
			if e.flights.Wait(); late {
				if len(held) > 0 || len(e.dispatched()) > 0 || e.inFlight != 0 {
					t.Errorf("%d of them fly after they were handed back, %v was called", len(held), e.dispatched())
				}
			} else if got := e.states(); got != "30 DONE" {
				t.Errorf("%s", got)
			}
			e.working()
			e.eventually("30 DONE")
			e.holdings.mu.Lock()
			n := len(e.holdings.gone)
			e.holdings.mu.Unlock()
			if n > 0 {
				t.Errorf("%d are remembered as handed back", n)
			}
			for token, calls := range e.dispatched() {
				if calls > 1 {
					t.Errorf("%s was called %d times", token, calls)
				}
			}
		})
	}
}

// A lease that is condemned is held by no flight any more, and one that is held is not condemned, whichever comes
// first.
func TestHoldingAndHandingBackExcludeEachOther(t *testing.T) {
	t.Parallel()
	lease := func(queue, fence int64) *pg.Lease {
		return &pg.Lease{Task: &pg.Task{ID: outbox.ID{Queue: queue, Seq: 1}}, Fence: fence}
	}
	never, always := func(sight) bool { return false }, func(sight) bool { return true }
	h := newHoldings()
	claim := h.begin()
	a, b, c := lease(1, 5), lease(2, 7), lease(3, 9)
	if held, refused := h.hold([]*pg.Lease{a}); len(held) != 1 || len(refused) > 0 {
		t.Fatal(held, refused)
	}
	seen, ticket := h.unheld([]pg.Fenced{fenced(a), fenced(b), fenced(c)})
	if !slices.Equal(seen, []pg.Fenced{fenced(b), fenced(c)}) || ticket != claim {
		t.Fatal(seen, ticket)
	}
	loose := map[pg.Fenced]sight{fenced(a): {}, fenced(b): {ticket: ticket}, fenced(c): {ticket: ticket}}
	if list := h.condemn(loose, never); len(list) > 0 || len(loose) != 2 {
		t.Fatalf("%v while the claim is under way, of %v", list, loose)
	}
	delete(loose, fenced(c))
	if list := h.condemn(loose, always); !slices.Equal(list, []pg.Fenced{fenced(b)}) {
		t.Fatalf("%v of a claim that is late", list)
	}
	if held, refused := h.hold([]*pg.Lease{b, c, lease(2, 8)}); len(held) != 2 || held[0] != c || len(refused) != 1 || refused[0] != b {
		t.Fatalf("held %v, refused %v", held, refused)
	}
	post := h.begin()
	if h.end(claim); len(h.gone) > 0 {
		t.Errorf("%v is remembered when no lease of it can come", h.gone)
	}
	h.let(c)
	loose = map[pg.Fenced]sight{fenced(c): {ticket: claim}}
	if list := h.condemn(loose, never); !slices.Equal(list, []pg.Fenced{fenced(c)}) || len(h.gone) != 1 {
		t.Errorf("%v of a claim that is over, while a post is under way, remembered %v", list, h.gone)
	}
	if h.end(post); len(h.gone) > 0 || len(h.open) > 0 {
		t.Errorf("%v are remembered, %v are open", h.gone, h.open)
	}
}
