package coord

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// pair is two nodes that hand each other what they say at once.
type pair struct {
	t     *testing.T
	nodes map[string]*Domain
	now   time.Time
	moves []Move
	posts []Post
	sent  []*Message

	answer func(*Call, *Answer) bool // changes what the services say; false: it is not said
	dead   string                    // the node that hears nothing
	told   int                       // how many posts the core has said to be done: see pass
}

func newPair(t *testing.T, change func(*Settings)) *pair {
	s := Defaults("a", "b")
	s.BlockRange = 10
	if change != nil {
		change(&s)
	}
	p := &pair{t: t, now: noon, nodes: map[string]*Domain{}}
	for _, name := range []string{"a", "b"} {
		p.nodes[name] = New("tok", name, s, 1)
	}
	return p
}

// handle runs events at a node, and all that follows from them at both, in the order in which it was sent.
func (p *pair) handle(name string, events ...Event) {
	p.t.Helper()
	type due struct {
		to     string
		events []Event
	}
	queue := []due{{name, events}}
	for ; len(queue) > 0; queue = queue[1:] {
		step := p.step(queue[0].to, queue[0].events)
		for _, c := range step.Calls {
			a := Answer{Key: c.Key, Result: OK}
			if c.Kind == "assemble" {
				a.Assembled = Assembled{Hash: "h", Plan: []Attestation{
					{Name: "owner", Type: "sign", Parties: []string{"x@a"}},
					{Name: "notary", Type: "endorse", Parties: []string{"x@a", "x@b"}, Threshold: 1},
				}}
			}
			if p.answer == nil || p.answer(c, &a) {
				queue = append(queue, due{queue[0].to, []Event{{Answer: &a}}})
			}
		}
		for _, m := range step.Messages {
			if p.sent = append(p.sent, m); m.To == p.dead {
				continue
			}
			queue = append(queue, due{m.To, []Event{{Message: m}}})
		}
	}
}

func (p *pair) step(name string, events []Event) Step {
	before := p.nodes[name]
	kept := before.Clone()
	step, err := Handle(before, events, p.now, 20)
	if err != nil {
		p.t.Fatal(err)
	}
	kept.places = before.places
	if !reflect.DeepEqual(before, kept) {
		p.t.Fatalf("the image of %s was changed", name)
	}
	p.nodes[name] = step.Domain
	p.moves, p.posts = append(p.moves, step.Moves...), append(p.posts, step.Posts...)
	return step
}

func (p *pair) states(machine, id string) (list []State) {
	for _, m := range p.moves {
		if m.Machine == machine && m.ID == id {
			list = append(list, m.To)
		}
	}
	return list
}

func TestOneIntentPassesAllItsStatesInOrder(t *testing.T) {
	p := newPair(t, func(s *Settings) { s.Mode, s.Static = Static, "b" })
	p.handle("a", Event{Created: &Intent{ID: "i"}})
	if len(p.posts) != 1 {
		t.Fatalf("%d public transactions, want 1: %v", len(p.posts), p.moves)
	}
	uid := p.posts[0].UID
	for _, state := range []string{CoreNonce, CoreSubmitted, CoreSuccess, CoreSuccess} {
		p.handle("b", Event{Core: &CoreWord{ID: "i", UID: uid, State: state, Nonce: 7, Hash: "0x1"}})
	}
	if got, want := p.states("originator_transaction", "i"), []State{Pending, Delegated, Assembling, Signing,
		EndorsementGathering, Prepared, Dispatched, Sequenced, Submitted, Confirmed}; !slices.Equal(got, want) {
		t.Errorf("the intent passed %v, want %v", got, want)
	}
	if got, want := p.states("coordinator_transaction", "i"), []State{Pooled, Assembling, Gathering, ConfirmingDispatch,
		ReadyForDispatch, Dispatched, Submitted, Confirmed}; !slices.Equal(got, want) {
		t.Errorf("the work passed %v, want %v", got, want)
	}
	i := p.nodes["a"].Intent("i")
	if i.Receipt != Success || len(p.nodes["a"].Permits) != 1 || !p.nodes["a"].Permits[0].Ended {
		t.Errorf("receipt %q, permits %+v", i.Receipt, p.nodes["a"].Permits)
	}
	if w := p.nodes["b"].Work("i"); !w.Told {
		t.Error("the coordinator does not know that the outcome is stored")
	}
}

// Twice the same, later: nothing is given, posted or ended a second time.
func TestWhatComesTwiceChangesNothing(t *testing.T) {
	p := newPair(t, func(s *Settings) { s.Mode, s.Static = Static, "b" })
	p.handle("a", Event{Created: &Intent{ID: "i"}})
	p.handle("b", Event{Core: &CoreWord{ID: "i", UID: p.posts[0].UID, State: CoreSuccess}})
	moves := len(p.moves)
	for _, m := range slices.Clone(p.sent) {
		p.handle(m.To, Event{Message: m})
	}
	for _, m := range p.moves[moves:] {
		if m.Machine != "coordinator" && m.Machine != "originator" {
			t.Errorf("%+v", m)
		}
	}
	if len(p.posts) != 1 || len(p.nodes["a"].Permits) != 1 {
		t.Errorf("%d posts, %d permits", len(p.posts), len(p.nodes["a"].Permits))
	}
}

func TestDependentsOfAFailureEndInItsStep(t *testing.T) {
	p := newPair(t, func(s *Settings) { s.Mode, s.Static = Static, "b" })
	p.handle("a", Event{Created: &Intent{ID: "i"}}, Event{Created: &Intent{ID: "j", DependsOn: []string{"i"}}},
		Event{Created: &Intent{ID: "k", DependsOn: []string{"j"}}})
	p.now = p.now.Add(time.Second)
	p.handle("b", Event{Core: &CoreWord{ID: "i", UID: p.posts[0].UID, State: CoreReverted, Reason: "no"}})
	p.handle("a", Event{Created: &Intent{ID: "l", DependsOn: []string{"k"}}})
	for _, id := range []string{"i", "j", "k", "l"} {
		if i := p.nodes["a"].Intent(id); i.Receipt != Failure || !i.EndedAt.Equal(p.now) {
			t.Errorf("%s: %q %q at %s", id, i.Receipt, i.Text, i.EndedAt)
		}
	}
	if text := p.nodes["a"].Intent("k").Text; text != "dependency failed: j" {
		t.Errorf("k says %q", text)
	}
}

func TestMoreThanThereIsRoomForWaits(t *testing.T) {
	p := newPair(t, func(s *Settings) { s.Mode, s.Static, s.MaxInflight, s.Batch = Static, "b", 3, 4 })
	var created []Event
	for _, id := range strings.Split("abcdefgh", "") {
		created = append(created, Event{Created: &Intent{ID: id}})
	}
	p.handle("a", created...)
	open := 0
	for _, w := range p.nodes["b"].Works {
		if !w.over() {
			open++
		}
	}
	if open != 3 {
		t.Errorf("b has %d works, want 3", open)
	}
	for _, m := range p.sent {
		if len(m.Delegations) > 4 {
			t.Errorf("%d delegations in one message", len(m.Delegations))
		}
	}
}

func TestAStepThatDoesNotEndIsAnError(t *testing.T) {
	turn := &turn{d: New("tok", "a", Defaults("a"), 1)}
	var again func()
	again = func() { turn.raise(again) }
	turn.raise(again)
	if err := turn.rest(); err == nil || !strings.Contains(err.Error(), "domain tok: more than 500 internal events") {
		t.Error(err)
	}
}

func TestUnknownAndForeignMessagesAreIgnored(t *testing.T) {
	d := New("tok", "a", Defaults("a", "b"), 1)
	for why, m := range map[string]*Message{
		"unsupported": {Kind: "Poem", From: "b", To: "a"},
		"foreign":     {Kind: Heartbeat, From: "c", To: "a"},
	} {
		step, err := Handle(d, []Event{{Message: m}}, noon, 1)
		if err != nil || len(step.Ignored) != 1 || step.Ignored[0].Why != why {
			t.Errorf("%s: %+v, %v", why, step.Ignored, err)
		}
	}
}

func TestWhatIsTooLittleIsRaised(t *testing.T) {
	s, low := Settings{Nodes: []string{"b", "a", "b"}}.Clamped()
	if !slices.Equal(s.Nodes, []string{"a", "b"}) || s.HeartbeatInterval != time.Second || s.BlockRange != 10 ||
		s.MaxInflight != 1 || !slices.Contains(low, "heartbeat_interval") || !slices.Contains(low, "block_range") {
		t.Errorf("%+v, %v", s, low)
	}
	if s, low := Defaults("a").Clamped(); len(low) > 0 || !reflect.DeepEqual(s, Defaults("a")) {
		t.Errorf("the defaults are raised: %v", low)
	}
}

// A node that is none of the domain any more holds up nothing: neither its works at a coordinator, nor the intents that
// it was brought.
func TestANodeThatHasLeftHoldsUpNothing(t *testing.T) {
	p := newPair(t, nil)
	from, to := "a", "b"
	var brought *Message
	for _, name := range []string{"a", "b"} {
		for _, m := range p.step(name, []Event{{Created: &Intent{ID: "of " + name}}}).Messages {
			if m.Kind == DelegationRequest {
				from, to, brought = name, m.To, m
			}
		}
	}
	if brought == nil {
		t.Fatal("neither node delegates its intent")
	}
	p.step(to, []Event{{Message: brought}})
	if p.nodes[to].Work("of "+from) == nil {
		t.Fatal("it has no work")
	}
	for name, d := range p.nodes {
		d.Settle(name, Defaults(name))
	}
	for range 40 {
		p.now = p.now.Add(time.Second)
		p.handle(to)
		p.handle(from)
	}
	if w := p.nodes[to].Work("of " + from); w.State != Evicted {
		t.Errorf("the work of a node that has left is %s", w.State)
	}
	if i := p.nodes[from].Intent("of " + from); i.Delegate != from {
		t.Errorf("the intent that was brought to it is %s at %q", i.State, i.Delegate)
	}
	for _, m := range p.sent {
		if m.To != m.From {
			t.Errorf("%s is told %s", m.To, m.Kind)
		}
	}
}

// A node has left whose work is dispatched, and the public transaction reverts, so that it could be tried again: the
// work is given up, and the domain goes on.
func TestARevertOfANodeThatHasLeftHoldsUpNothing(t *testing.T) {
	for _, state := range []string{CoreReverted, CoreUndone} {
		p := newPair(t, func(s *Settings) { s.Mode, s.Static = Static, "b" })
		p.handle("a", Event{Created: &Intent{ID: "i"}})
		d := p.nodes["b"].Clone()
		d.Settle("b", Defaults("b"))
		p.nodes["b"] = d
		p.step("b", []Event{{Core: &CoreWord{ID: "i", UID: p.posts[0].UID, State: state, Retry: true, Reason: "no"}}})
		if w := p.nodes["b"].Work("i"); w.State != Evicted {
			t.Errorf("behind %s the work of a node that has left is %s", state, w.State)
		}
	}
}

// The service of an endorser has an error: that is no refusal, and is asked about again. A refusal is counted.
func TestAnErrorOfAnEndorserIsNoRefusal(t *testing.T) {
	for _, c := range []struct {
		result string
		told   int
	}{{Err, 0}, {Revert, 1}} {
		p := newPair(t, nil)
		step := p.step("b", []Event{{Message: &Message{Kind: EndorsementRequest, From: "a", To: "b", ID: "i", Key: "k",
			Name: "notary", Party: "x@b", Beat: 1, Install: 1}}})
		if len(step.Calls) != 1 {
			t.Fatalf("%d calls", len(step.Calls))
		}
		told := 0
		for _, m := range p.step("b", []Event{{Answer: &Answer{Key: "k", Result: c.result}}}).Messages {
			if m.Kind == EndorsementRejected || m.Kind == EndorsementResponse {
				told++
			}
		}
		again := p.step("b", []Event{{Message: &Message{Kind: EndorsementRequest, From: "a", To: "b", ID: "i", Key: "k",
			Name: "notary", Party: "x@b", Beat: 2, Install: 1}}})
		if told != c.told || len(again.Calls) != 1 {
			t.Errorf("%s: %d answers, and %d calls when it is asked again", c.result, told, len(again.Calls))
		}
	}
}

// What the one before listed as spent is spent until that node names its public transactions no more, also once this
// one has become Active without waiting for them.
func TestWhatIsListedAsSpentIsTickedOffLater(t *testing.T) {
	p := newPair(t, nil)
	d := p.nodes["b"].Clone()
	d.Seat.Coordinator, d.Seat.Points, d.Seat.Spent, d.Seat.PointsOf = Active, []string{"u"}, []string{"s"}, "a"
	p.nodes["b"] = d
	beat := func(n int64, state State, points ...string) []string {
		p.step("b", []Event{{Message: &Message{Kind: Heartbeat, From: "a", To: "b", State: state, Points: points,
			Beat: n, Install: 1}}})
		return p.nodes["b"].Seat.Spent
	}
	if spent := beat(1, Flush, "u"); len(spent) != 1 {
		t.Errorf("while it is named %v is spent", spent)
	}
	if spent := beat(2, Closing); len(spent) != 0 {
		t.Errorf("when it is named no more %v is spent", spent)
	}
}
