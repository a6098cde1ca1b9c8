package coord

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// An intent is cancelled wherever it is on its way to a permit: its coordinator gets none, posts nothing, and is told.
func TestAnIntentIsCancelledBeforeItHasAPermit(t *testing.T) {
	for call, state := range map[string]State{
		"assemble": Assembling, "sign": Signing, "endorse": EndorsementGathering, "prepare": EndorsementGathering,
	} {
		p := newPair(t, func(s *Settings) { s.Mode, s.Static = Static, "b" })
		var late []*Call
		p.answer = func(c *Call, _ *Answer) bool {
			if c.Kind == call {
				late = append(late, c)
			}
			return c.Kind != call
		}
		p.handle("a", Event{Created: &Intent{ID: "i"}})
		i := p.nodes["a"].Intent("i")
		if i.State != state || len(late) == 0 {
			t.Fatalf("without an answer to %s it is %s", call, i.State)
		}
		p.handle("a", Event{Lever: Cancel, ID: "i"})
		if i = p.nodes["a"].Intent("i"); i.Receipt != Failure || i.Text != "cancelled" {
			t.Errorf("%s: behind a cancel it is %s, receipt %q %s", call, i.State, i.Receipt, i.Text)
		}
		p.answer = nil
		for _, c := range late {
			for name := range p.nodes {
				p.handle(name, Event{Answer: &Answer{Key: c.Key, Result: OK, Assembled: c.Assembled}})
			}
		}
		p.rest(60)
		if len(p.posts) != 0 || len(p.nodes["a"].Permits) != 0 {
			t.Errorf("%s: %d are posted, permits %+v", call, len(p.posts), p.nodes["a"].Permits)
		}
		if w := p.nodes["b"].Work("i"); w != nil && !w.over() {
			t.Errorf("%s: the coordinator has it as %s", call, w.State)
		}
	}
}

// One that has a permit is not cancelled.
func TestAnIntentWithAPermitIsNotCancelled(t *testing.T) {
	p := newPair(t, func(s *Settings) { s.Mode, s.Static = Static, "b" })
	p.handle("a", Event{Created: &Intent{ID: "i"}})
	p.handle("a", Event{Lever: Cancel, ID: "i"})
	if i := p.nodes["a"].Intent("i"); i.Ended() || len(p.posts) != 1 {
		t.Errorf("%s %q, %d posts", i.State, i.Receipt, len(p.posts))
	}
	for _, s := range append(outIntents, Prepared) {
		if slices.Contains(CancelledIn, s) {
			t.Errorf("it may be cancelled when it is %s", s)
		}
	}
}

// Why a try came to nothing is known at both nodes, until there is a permit.
func TestWhyATryCameToNothingIsKept(t *testing.T) {
	for call, reason := range map[string]string{"assemble": "no JSON", "endorse": "500", "prepare": "no type"} {
		p := newPair(t, func(s *Settings) { s.Mode, s.Static = Static, "b" })
		p.answer = func(c *Call, a *Answer) bool {
			if c.Kind == call {
				a.Result, a.Reason = Err, reason
			}
			return true
		}
		p.handle("a", Event{Created: &Intent{ID: "i"}})
		for range 40 {
			p.rest(1)
			if w := p.nodes["b"].Work("i"); w != nil && strings.Contains(w.Trouble, reason) {
				break
			}
		}
		p.rest(10)
		if i := p.nodes["a"].Intent("i"); !strings.Contains(i.Trouble, reason) {
			t.Errorf("%s: the intent says %q", call, i.Trouble)
		}
		p.answer = nil
		p.rest(60)
		i, w := p.nodes["a"].Intent("i"), p.nodes["b"].Work("i")
		if len(p.posts) != 1 || i.Trouble != "" || w.Trouble != "" {
			t.Errorf("%s: %d posts, the intent says %q, the work %q", call, len(p.posts), i.Trouble, w.Trouble)
		}
	}
}

// A word that ends the permits of an intent takes back its work that waits at this node for its turn: nothing of it
// goes out behind that word, whether the operator says that it was done or not.
func TestAReleaseTakesBackWhatWaitsForItsTurn(t *testing.T) {
	for name, levers := range map[Lever][]Lever{ReleaseIt: {ReleaseIt, Cancel}, ItWasDone: {ItWasDone}} {
		p := newPair(t, func(s *Settings) { s.Mode, s.MaxDispatchAhead = Sender, 1 })
		p.handle("a", Event{Created: &Intent{ID: "first"}})
		p.handle("a", Event{Created: &Intent{ID: "i"}})
		if w := p.nodes["a"].Work("i"); len(p.posts) != 1 || w.State != ReadyForDispatch {
			t.Fatalf("%d posts, and the second is %s", len(p.posts), w.State)
		}
		for _, l := range levers {
			p.handle("a", Event{Lever: l, ID: "i"})
		}
		ended := p.nodes["a"].Intent("i").Ended()
		p.handle("a", Event{Core: &CoreWord{ID: "first", UID: p.posts[0].UID, State: CoreSuccess}})
		p.rest(60)
		if out := len(p.posts) - 1; ended && out != 0 || out > 1 {
			t.Errorf("%s: it has ended: %v, and %d go out", name, ended, out)
		}
	}
}

// A seat that has no node to hand over to takes intents also while something of before it was away is on its way.
func TestASeatWithoutASuccessorGoesOn(t *testing.T) {
	p := newPair(t, func(s *Settings) { s.Mode = Sender })
	p.handle("a", Event{Created: &Intent{ID: "stuck"}})
	p.now = p.now.Add(10 * time.Minute) // all processes were down
	p.handle("a")
	if s := p.nodes["a"].Seat.Coordinator; s != Flush {
		t.Fatalf("behind a time away it is %s", s)
	}
	p.handle("a", Event{Created: &Intent{ID: "next"}})
	p.rest(60)
	if len(p.posts) != 2 {
		t.Errorf("%d posts, the second intent is %s", len(p.posts), p.nodes["a"].Intent("next").State)
	}
}
