package coord

import (
	"fmt"
	"testing"
	"time"
)

// counted counts the works of a node which something is true of.
func (p *pair) counted(name string, is func(*Work) bool) (n int) {
	for _, w := range p.nodes[name].Works {
		if is(w) {
			n++
		}
	}
	return n
}

func many(prefix string, n int) (created []Event) {
	for i := range n {
		created = append(created, Event{Created: &Intent{ID: fmt.Sprint(prefix, i)}})
	}
	return created
}

// pass lets seconds pass at both nodes, or at b alone where a is dead. The core confirms ten posts a second.
func (p *pair) pass(seconds int) {
	for range seconds {
		p.now = p.now.Add(time.Second)
		if p.dead != "a" {
			p.handle("a")
		}
		p.handle("b")
		for end := p.told + 10; p.told < min(end, len(p.posts)); p.told++ {
			post := p.posts[p.told]
			p.handle("b", Event{Core: &CoreWord{ID: post.ID, UID: post.UID, State: CoreSuccess}})
		}
	}
}

// atOnce has a delegate many intents in one message to b.
func (p *pair) atOnce(n int) {
	p.dead = "b"
	p.handle("a", many("a", n)...)
	p.dead = ""
	p.now = p.now.Add(p.nodes["a"].Settings.DelegateTimeout)
	p.handle("a")
}

// dispatched counts the posts of intents whose ids begin with a prefix.
func (p *pair) dispatched(prefix string) (n int) {
	for _, post := range p.posts {
		if post.ID[:len(prefix)] == prefix {
			n++
		}
	}
	return n
}

// unsigned has works need no signature, but those that answer is asked about and does not answer.
func unsigned(silent func(*Call) bool) func(*Call, *Answer) bool {
	return func(c *Call, a *Answer) bool {
		a.Assembled.Plan = nil
		return silent == nil || !silent(c)
	}
}

// A node that has dispatched little takes 32 that wait, and as many as it dispatches afterwards: what a short tenure
// gives back is little.
func TestACoordinatorTakesByWhatItDispatches(t *testing.T) {
	p := newPair(t, func(s *Settings) { s.Mode, s.Static, s.MaxDispatchAhead = Static, "b", 50 })
	hangs := true
	p.answer = unsigned(func(c *Call) bool { return hangs })
	p.handle("a", many("i", 120)...)
	if n := p.counted("b", (*Work).waits); n != 32 {
		t.Errorf("b has dispatched nothing, and %d wait, want %d", n, 32)
	}
	hangs = false
	p.pass(15)
	if s := p.nodes["b"].Seat; s.Posted != len(p.posts) || s.Posted < 40 || s.Before != 0 {
		t.Errorf("it counts %d and %d of %d", s.Posted, s.Before, len(p.posts))
	}
	turn := &turn{d: p.nodes["b"]}
	if n := turn.mostWaiting(); n != len(p.posts) {
		t.Errorf("behind %d posts %d may wait", len(p.posts), n)
	}
}

// Works that wait for an originator that does not answer take no room from those of others.
func TestADeadOriginatorTakesNoRoom(t *testing.T) {
	for _, most := range []int{3, 500} {
		p := newPair(t, func(s *Settings) { s.Mode, s.Static, s.MaxInflight = Static, "b", most })
		p.answer = unsigned(func(c *Call) bool { return c.ID[0] == 'a' })
		p.atOnce(40)
		p.dead = "a"
		p.handle("b", many("b", 20)...)
		p.pass(60)
		if n := p.dispatched("b"); n != 20 {
			t.Errorf("with %d in flight %d of b were dispatched beside those of a dead node, want 20", most, n)
		}
	}
}

// An intent whose assembly is never answered holds up none of those behind it, not even of one delegation.
func TestOneThatIsNeverAssembledHoldsUpNone(t *testing.T) {
	p := newPair(t, func(s *Settings) { s.Mode, s.Static = Static, "b" })
	p.answer = unsigned(func(c *Call) bool { return c.ID == "a0" })
	p.atOnce(60)
	p.pass(30)
	if n := p.dispatched("a"); n != 59 {
		t.Errorf("%d of 59 were dispatched beside one that hangs", n)
	}
}

// Works whose endorsers do not answer take no room of those that need none.
func TestWorksWithoutEndorsementsTakeNoRoom(t *testing.T) {
	p := newPair(t, func(s *Settings) { s.Mode, s.Static = Static, "b" })
	p.answer = func(c *Call, a *Answer) bool {
		if c.ID[0] != 'e' {
			a.Assembled.Plan = nil
		}
		return c.Kind != "endorse"
	}
	p.handle("a", many("e", 50)...)
	p.handle("a", many("f", 10)...)
	p.pass(20)
	if n := p.dispatched("f"); n != 10 {
		t.Errorf("%d of 10 were dispatched behind 50 that no endorser answers for", n)
	}
}

// A coordinator with a backlog of its own keeps places for the other nodes.
func TestABacklogLeavesRoomForTheOthers(t *testing.T) {
	p := newPair(t, func(s *Settings) { s.Mode, s.Static, s.MaxInflight, s.MaxDispatchAhead = Static, "b", 12, 2 })
	p.answer = unsigned(nil)
	p.handle("b", many("b", 200)...)
	p.pass(2)
	p.handle("a", many("a", 4)...)
	if n := p.dispatched("b"); n > 100 {
		t.Fatalf("the backlog is over: %d", n)
	}
	p.pass(12)
	if n, of := p.dispatched("a"), p.dispatched("b"); n != 4 || of == 200 {
		t.Errorf("%d of a and %d of b were dispatched", n, of)
	}
}

// Intents that cannot be assembled before a younger one is done do not keep that out, also where each try takes long.
func TestWorksThatFailLetYoungerOnesIn(t *testing.T) {
	p := newPair(t, func(s *Settings) { s.Mode, s.Static, s.FirstRoom = Static, "b", 1 })
	var later []*Answer
	p.answer = func(c *Call, a *Answer) bool {
		a.Assembled.Plan = nil
		if c.Kind != "assemble" || c.ID[0] != 'a' || p.dispatched("m") > 0 {
			return true
		}
		failed := *a
		failed.Result = Err
		later = append(later, &failed)
		return false
	}
	p.handle("a", many("a", 12)...)
	p.handle("a", many("m", 1)...)
	for range 600 {
		said := later
		later = nil
		for _, a := range said {
			p.handle("a", Event{Answer: a})
		}
		p.pass(1)
	}
	if n, m := p.dispatched("a"), p.dispatched("m"); n != 12 || m != 1 {
		t.Errorf("%d of 12 were dispatched, and %d that they need", n, m)
	}
}

// Where there is one place alone, a node with a backlog that coordinates leaves it to another one now and then.
func TestOnePlaceIsShared(t *testing.T) {
	p := newPair(t, func(s *Settings) { s.Mode, s.Static, s.MaxInflight = Static, "b", 1 })
	p.answer = unsigned(nil)
	p.handle("b", many("b", 500)...)
	p.pass(2)
	p.handle("a", many("a", 2)...)
	p.pass(40)
	if n, of := p.dispatched("a"), p.dispatched("b"); n != 2 || of == 500 || of < 100 {
		t.Errorf("%d of a and %d of b were dispatched", n, of)
	}
}
