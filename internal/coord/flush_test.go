package coord

import (
	"testing"
	"time"
)

// A node that has handed over, and has a public transaction without a known outcome, takes what is delegated once the
// grace for the flush is over and no other node coordinates: not before, and not beside one that does.
func TestANodeThatFlushesGoesOnWhereNoneFollows(t *testing.T) {
	flushes := func() *pair {
		p := newPair(t, nil)
		p.handle("a", Event{Started: true})
		d := p.nodes["a"]
		d.Seat.Coordinator, d.Seat.CoordinatorSince, d.Seat.Successor = Flush, p.now, "b"
		d.Works = []*Work{{ID: "u", Origin: "b", State: Dispatched, UID: "u.a.1.1", Unknown: true, Generation: 1}}
		return p
	}
	p := flushes()
	grace := p.nodes["a"].Settings.FlushGrace
	delegated := func(beat int64) State {
		p.step("a", []Event{{Message: &Message{Kind: DelegationRequest, From: "b", To: "a", Install: 1, Height: 20,
			Beat: p.now.UnixMicro() + beat, Delegations: []Delegation{{ID: "i", Generation: 1}}}}})
		return p.nodes["a"].Seat.Coordinator
	}
	if at := delegated(1); at != Flush {
		t.Errorf("within the grace it is %s", at)
	}
	p.now = p.now.Add(grace + time.Second)
	p.step("a", []Event{{Message: &Message{Kind: Heartbeat, From: "b", To: "a", Install: 1, Height: 20,
		Beat: p.now.UnixMicro(), State: Active}}})
	if at := delegated(2); at != Flush {
		t.Errorf("beside one that coordinates it is %s", at)
	}
	p.now = p.now.Add(p.nodes["a"].Settings.grace() + time.Second)
	if at := delegated(3); at != Active {
		t.Errorf("behind the grace, and alone, it is %s", at)
	}

	p = flushes()
	p.dead = "b"
	p.handle("a", Event{Created: &Intent{ID: "mine"}})
	for range 200 {
		p.now = p.now.Add(time.Second)
		p.handle("a")
	}
	if i := p.nodes["a"].Intent("mine"); i.Generation == 0 || p.nodes["a"].Work("mine") == nil {
		t.Errorf("with the other node dead an intent stands: %s, %v", i.State, p.moves)
	}
}
