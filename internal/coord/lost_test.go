package coord

import (
	"testing"
	"time"
)

// rest lets seconds pass.
func (p *pair) rest(seconds int) {
	p.t.Helper()
	for range seconds {
		p.now = p.now.Add(time.Second)
		p.handle("a")
		p.handle("b")
	}
}

// lost is a pair whose node a has lost rows, and goes on.
func lost(t *testing.T, once Once) *pair {
	p := newPair(t, func(s *Settings) { s.Mode, s.Static, s.Once = Static, "b", once })
	p.handle("a", Event{Created: &Intent{ID: "before"}}) // they hear of one another
	p.handle("b", Event{Core: &CoreWord{ID: "before", UID: p.posts[0].UID, State: CoreSuccess}})
	p.handle("a", Event{Lever: Quarantine})
	p.handle("a", Event{Lever: LeaveIt})
	return p
}

// An intent with a uid that is submitted after a loss may have been submitted before: it waits until the other nodes
// have said that they know nothing of it, and an operator has said so of its own node. One without a uid is new.
func TestAnIntentThatMayBeKnownWaitsAfterALoss(t *testing.T) {
	for name, c := range map[string]struct {
		once  Once
		named bool
		after time.Duration
		open  int // permits that wait for the word of an operator
	}{
		"with a uid":             {Hold, true, time.Hour, 1},
		"without one":            {Hold, false, time.Hour, 0},
		"a day later":            {Hold, true, 25 * time.Hour, 0},
		"where the ledger knows": {Ledger, true, time.Hour, 1},
	} {
		p := lost(t, c.once)
		p.now = p.now.Add(c.after)
		p.handle("a", Event{Created: &Intent{ID: "i"}, Named: c.named})
		open := 0
		for _, q := range p.nodes["a"].Permits {
			if !q.Ended && q.ClosedBy == "presumed" {
				open++
				if q.Node != "a" {
					t.Errorf("%s: node %s was asked, and has a permit still", name, q.Node)
				}
			}
		}
		waits := p.nodes["a"].Intent("i").State == Pending
		if open != c.open || waits != (open > 0 && c.once == Hold) {
			t.Errorf("%s: %d permits are presumed, and it waits: %v", name, open, waits)
		}
		for range 2 { // an answer that was lost is no second word
			p.handle("a", Event{Lever: MadeGood})
		}
		if i := p.nodes["a"].Intent("i"); i.State == Pending {
			t.Errorf("%s: it is %s behind the word of an operator", name, i.State)
		}
	}
}

// The node that has an intent from the life that is lost says so: its outcome counts, and no other node gets it.
func TestWhatWasSentInALifeThatIsLostIsHeard(t *testing.T) {
	for name, after := range map[string]time.Duration{"by a question": time.Hour, "by its word": 25 * time.Hour} {
		p := newPair(t, func(s *Settings) { s.Mode, s.Static = Static, "b" })
		before := p.nodes["a"].Clone()
		p.handle("a", Event{Created: &Intent{ID: "i"}, Named: true})
		if len(p.posts) != 1 {
			t.Fatal(p.moves)
		}
		p.nodes["a"] = before // a is restored
		p.handle("a", Event{Lever: Quarantine})
		p.handle("a", Event{Lever: LeaveIt})
		p.now = p.now.Add(after)
		p.handle("a", Event{Created: &Intent{ID: "i"}, Named: true})
		p.handle("b", Event{Core: &CoreWord{ID: "i", UID: p.posts[0].UID, State: CoreSuccess, Hash: "0x1"}})
		p.now = p.now.Add(2 * time.Second)
		p.handle("b")
		if i := p.nodes["a"].Intent("i"); i.Receipt != Success || len(p.posts) != 1 {
			t.Errorf("%s: receipt %q, %s, %d posts", name, i.Receipt, i.State, len(p.posts))
		}
	}
}

// What bounds the tries of an intent goes with it from one coordinator to the next.
func TestCountsGoOnAtTheNextCoordinator(t *testing.T) {
	p := newPair(t, func(s *Settings) { s.Mode, s.Static, s.BaseLedgerRevertThreshold = Static, "b", 1 })
	p.handle("a", Event{Created: &Intent{ID: "i"}})
	p.handle("b", Event{Core: &CoreWord{ID: "i", UID: p.posts[0].UID, State: CoreReverted, Reason: "no", Retry: true}})
	p.handle("b", Event{Message: &Message{Kind: Asked, From: "a", To: "b", IDs: []string{"i"},
		Beat: noon.UnixMicro() + 99, Install: 1}})
	if i := p.nodes["a"].Intent("i"); i.Counts != (Counts{Reverts: 1}) {
		t.Fatalf("its node counts %+v", i.Counts)
	}
	fresh := newPair(t, func(s *Settings) { s.Mode, s.Static, s.BaseLedgerRevertThreshold = Static, "b", 1 })
	p.nodes["b"] = fresh.nodes["b"] // another coordinator, which has never had it
	p.rest(60)
	w := p.nodes["b"].Work("i")
	if w == nil || w.Counts != (Counts{Reverts: 1}) {
		t.Fatalf("the next one has %+v", w)
	}
}
