package coord

import (
	"strings"
	"testing"
	"time"
)

// Only the answer to a hello that its sender has not answered may stop a node: not one that comes at another time, nor
// one to a word that this node has not said.
func TestAGreetingCountsForAnOpenHelloAlone(t *testing.T) {
	greeting := func(echo int64) Event {
		return Event{Message: &Message{Kind: Greeting, From: "b", To: "a", Install: 1, Beat: noon.UnixMicro() + 5e6,
			Echo: echo, SeenInstall: 99}}
	}
	p := newPair(t, nil)
	p.handle("a", greeting(1))
	if p.nodes["a"].Paused {
		t.Error("a greeting stops a node that has said no hello")
	}
	p.now = noon.Add(1e9)
	p.handle("a", Event{Started: true}) // b answers
	if s := p.nodes["a"].Seat; !s.HelloAt.IsZero() {
		t.Fatalf("it is not greeted: %+v", s)
	}
	p.handle("a", greeting(p.nodes["a"].Seat.Beat))
	if p.nodes["a"].Paused {
		t.Error("a second greeting stops a node that was greeted")
	}
	p.now = noon.Add(2e9)
	p.step("a", []Event{{Started: true}}) // its hello is on its way
	p.handle("a", greeting(p.nodes["a"].Seat.Beat+1))
	if s := p.nodes["a"].Seat; p.nodes["a"].Paused || s.HelloAt.IsZero() {
		t.Error("an answer to what was not said counts")
	}
	p.handle("a", greeting(p.nodes["a"].Seat.Beat))
	if !p.nodes["a"].Paused {
		t.Error("the answer of one who has heard more does not stop the node")
	}
}

// The time in which others may answer a hello does not run while an operator has paused the domain, since nothing is
// sent then, nor while no process takes a step.
func TestTheGraceOfAHelloRunsWhileItIsSaid(t *testing.T) {
	waits := func(p *pair) bool { return !p.nodes["a"].Seat.HelloAt.IsZero() }
	grace := Defaults("a", "b").grace()
	for name, quiet := range map[string]func(*pair){
		"paused, and no process takes a step": func(p *pair) {
			p.step("a", []Event{{Started: true}, {Hushed: true}})
			p.now = p.now.Add(3 * grace)
		},
		"paused, with steps": func(p *pair) {
			p.step("a", []Event{{Started: true}, {Hushed: true}})
			for range 30 {
				p.now = p.now.Add(grace / 5)
				p.step("a", []Event{{Hushed: true}})
			}
		},
		"no process takes a step": func(p *pair) {
			p.step("a", []Event{{Started: true}})
			p.now = p.now.Add(3 * grace)
		},
	} {
		p := newPair(t, nil)
		quiet(p)
		said := 0
		for at := p.now; p.now.Sub(at) < grace; p.now = p.now.Add(time.Second) {
			for _, m := range p.step("a", nil).Messages {
				if m.Kind == Hello {
					said++
				}
			}
			if !waits(p) {
				t.Errorf("%s: it goes on %s behind, without an answer", name, p.now.Sub(at))
				break
			}
		}
		p.step("a", nil)
		if said == 0 || waits(p) {
			t.Errorf("%s: %d hellos, and it waits: %v", name, said, waits(p))
		}
	}
}

// What others say is told on in a thousand bytes, so that a message stays one.
func TestALongReasonIsToldInShort(t *testing.T) {
	w := &Work{Trouble: strings.Repeat("é", 3000)}
	e := w.entry()
	if len(e.Reason) > 1003 || !strings.HasPrefix(e.Reason, "éé") || !strings.HasSuffix(e.Reason, "é...") {
		t.Errorf("%d bytes, ending in %q", len(e.Reason), e.Reason[len(e.Reason)-8:])
	}
}

// A machine on which each step is late waits for no greeting for ever.
func TestTheWaitOfALateMachineHasAnEnd(t *testing.T) {
	p := newPair(t, nil)
	p.step("a", []Event{{Started: true}})
	for range mostAnew + 1 {
		p.now = p.now.Add(3 * Defaults("a", "b").grace())
		p.step("a", nil)
	}
	if !p.nodes["a"].Seat.HelloAt.IsZero() {
		t.Error("it waits for ever")
	}
}

// A store that has gone back in time is noticed by what the other node has heard of the life that is lost, however
// often the processes end before the greeting. One that has lost nothing is not stopped, however often they do.
func TestARestoreIsNoticedBehindRestarts(t *testing.T) {
	ends := func(p *pair, heard bool) { // a starts, and ends before the greeting is in
		p.now = p.now.Add(time.Second)
		st := p.step("a", []Event{{Started: true}})
		p.now = p.now.Add(time.Second)
		st.Messages = append(st.Messages, p.step("a", []Event{{Created: &Intent{ID: "late"}, Named: true}}).Messages...)
		for _, m := range st.Messages {
			if heard {
				p.step("b", []Event{{Message: m}})
			}
		}
	}
	lives := func(p *pair, id string) { // a life that is greeted, and says something
		p.now = p.now.Add(time.Second)
		p.handle("a", Event{Started: true})
		p.handle("a", Event{Created: &Intent{ID: id}})
	}
	backup := func(p *pair) func() {
		d := p.nodes["a"].Clone()
		return func() { p.nodes["a"] = d }
	}
	for name, c := range map[string]struct {
		play func(p *pair, back func())
		lost bool
	}{
		"nothing is lost":      {func(p *pair, _ func()) { ends(p, true); ends(p, false); ends(p, true) }, false},
		"hellos are heard":     {func(p *pair, back func()) { lives(p, "x"); back(); ends(p, true) }, true},
		"they are not":         {func(p *pair, back func()) { lives(p, "x"); back(); ends(p, false) }, true},
		"with restarts before": {func(p *pair, back func()) { ends(p, true); lives(p, "x"); back() }, true},
		"to a time amid the wait": {func(p *pair, _ func()) {
			ends(p, true)
			back := backup(p)
			lives(p, "x")
			back()
			ends(p, true)
		}, true},
		"only a hello was heard": {func(p *pair, back func()) {
			p.now = p.now.Add(10 * time.Second)
			p.step("a", nil) // what it says is not heard
			ends(p, true)
			back()
		}, true},
	} {
		p := newPair(t, func(s *Settings) { s.Mode, s.Static = Static, "b" })
		lives(p, "first")
		p.rest(3)
		c.play(p, backup(p))
		p.now = p.now.Add(time.Second)
		p.handle("a", Event{Started: true})
		if p.nodes["a"].Paused != c.lost || !c.lost && p.nodes["a"].Still() {
			t.Errorf("%s: stopped: %v, waits: %v", name, p.nodes["a"].Paused, p.nodes["a"].Still())
		}
	}
}
