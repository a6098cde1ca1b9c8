package coord

import (
	"fmt"
	"slices"
	"time"

	"github.com/postern-dev/postern/internal/machine"
)

// Event is something that happened to a domain: exactly one field is set.
type Event struct {
	Message *Message
	Created *Intent // with ID and DependsOn
	Named   bool    // of Created: under a uid, so that its client may have submitted it before
	Answer  *Answer
	Core    *CoreWord
	Lever   Lever
	ID      string // of the intent or work that the lever is for
	Started bool   // the first process of the installation starts, all were down
	Hushed  bool   // an operator has paused the domain, or all are down still: the messages of this step are not sent
}

// Lever is what people do to an intent, a work or a domain.
type Lever string

// The levers.
const (
	Resume      Lever = "resume"      // an intent that is parked
	Cancel      Lever = "cancel"      // an intent without a permit
	ReleaseIt   Lever = "release"     // nothing of it is on its way any more: its permits end
	ItWasDone   Lever = "it_was_done" // the ledger has it
	Quarantine  Lever = "quarantine"  // the store may have lost something
	LeaveIt     Lever = "leave"       // quarantine is over
	MadeGood    Lever = "made_good"   // nothing that this node posted in the life that is lost is on its way, or untold
	Lower       Lever = "lower"       // the height was wrong: it falls to the one that Handle is given
	WasNotDone  Lever = "was_not"     // of a work with an unknown outcome
	WasDoneWork Lever = "was_done"
)

// CoreWord is what the core says of the public transaction of a work.
type CoreWord struct {
	ID, UID string
	State   string // nonce, submitted, success, reverted, undone, unknown
	Nonce   int64
	Hash    string
	Reason  string
	Retry   bool // of reverted: another assembly may do better
}

// The states of a public transaction.
const (
	CoreNonce     = "nonce"
	CoreSubmitted = "submitted"
	CoreSuccess   = "success"
	CoreReverted  = "reverted"
	CoreUndone    = "undone"
	CoreUnknown   = "unknown"
)

// Post is a public transaction that is handed to the core: under a uid, behind those of its producers.
type Post struct {
	ID, UID         string
	Generation      int64
	Hash            string
	Inputs, Outputs []string
	DependsOn       []string
}

// Move is one row of the history.
type Move struct {
	At           time.Time
	Machine, ID  string
	From, To     State
	On           On
	Generation   int64
	Node, Reason string
}

// Receipt ends an intent.
type Receipt struct{ ID, Outcome, Text string }

// Ignored is what changed nothing, and why.
type Ignored struct{ What, Why string }

// Step is what Handle leads to: the image to be stored, and what goes out once it is.
type Step struct {
	Domain   *Domain
	Moves    []Move
	Messages []*Message
	Calls    []*Call
	Posts    []Post
	Recalls  []string // uids that the core is to cancel unless they may have gone out
	Receipts []Receipt
	Ignored  []Ignored
	Led      string    // the node that coordinated before another one did; "": that has not changed
	Due      time.Time // when it is to be looked at again at the latest
}

// turn is one run of Handle.
type turn struct {
	d      *Domain
	now    time.Time
	height int64
	queue  []func()
	fired  int
	step   Step

	byIntent                    map[string][]*Permit // of d
	delegating, asking, ringing bool                 // is raised, and has not run yet
	hushed                      bool                 // messages of this turn are not sent
}

// fact is what an event brings beside itself.
type fact struct {
	m     *Message
	p     *Peer
	ans   *Answer
	core  *CoreWord
	entry Entry
	text  string
}

// Handle runs what happened to its rest: each event with all that follows from it before the next, then the timers that
// are due by now. It changes nothing of the image that it is given. Outcomes: a step; an error where a step does not
// come to its rest, which is a fault of ours: then nothing is stored, and the caller pauses the domain.
func Handle(d *Domain, events []Event, now time.Time, height int64) (Step, error) {
	t := &turn{d: d.Clone(), now: now, height: height}
	parts := slices.Clone(clocks)
	for _, e := range events {
		if part := func(t *turn) { t.take(e) }; e.Started || e.Hushed || e.Lever == Quarantine {
			parts = slices.Insert(parts, 0, part) // before anything is said in this life
		} else {
			parts = append(parts, part)
		}
	}
	for _, part := range append(parts, timers...) {
		part(t)
		if err := t.rest(); err != nil {
			return Step{}, err
		}
	}
	t.led()
	t.step.Domain, t.step.Due = t.d, t.due()
	return t.step, nil
}

// raise queues what follows from an event. It runs in this step, in the order in which it was raised.
func (t *turn) raise(f func()) { t.queue = append(t.queue, f) }

// raiseOnce queues what is to run once behind all that has been raised so far, unless it waits already.
func (t *turn) raiseOnce(waits *bool, f func()) {
	if *waits {
		return
	}
	*waits = true
	t.raise(func() {
		*waits = false
		f()
	})
}

// rest runs all that was raised. More than fifty for each row is an endless chain.
func (t *turn) rest() error {
	most := 50 * (10 + len(t.d.Intents) + len(t.d.Works))
	for n := 0; len(t.queue) > 0; n++ {
		if n > most {
			last := t.step.Moves[max(0, len(t.step.Moves)-6):]
			return fmt.Errorf("domain %s: more than %d internal events follow from one; the last moves are %+v",
				t.d.Name, most, last)
		}
		f := t.queue[0]
		t.queue = t.queue[1:]
		f()
	}
	return nil
}

// take handles one event from outside.
func (t *turn) take(e Event) {
	switch {
	case e.Message != nil:
		t.receive(e.Message)
	case e.Started:
		t.started()
	case e.Hushed:
		t.hushed = true
	case e.Created != nil:
		t.created(e.Created, e.Named)
	case e.Answer != nil:
		t.answered(e.Answer)
	case e.Core != nil:
		t.said(e.Core)
	default:
		t.pulled(e.Lever, e.ID)
	}
}

// pulled does what a lever is for.
func (t *turn) pulled(l Lever, id string) {
	i, w := t.d.Intent(id), t.d.Work(id)
	switch {
	case l == Quarantine:
		t.quarantine()
	case l == LeaveIt:
		t.leave()
	case l == MadeGood:
		t.madeGood()
	case l == Lower:
		t.lowered()
	case t.d.Still() && l != Resume: // a permit that is not known may have been given in a life that is lost
		t.ignore(string(l), "still")
	case l == WasNotDone && w != nil:
		t.work(w, OnDispatchUndone, fact{text: "it was not done, says an operator"})
	case l == WasDoneWork && w != nil:
		t.work(w, OnConfirmed, fact{core: &CoreWord{UID: w.UID, State: CoreSuccess}})
	case i == nil:
		t.ignore(string(l), "unknown")
	case l == ReleaseIt:
		t.dropOwn(i)
		t.release(i)
	case l == ItWasDone:
		t.dropOwn(i)
		t.intent(i, OnFulfilled, fact{text: "it was done, says an operator"})
	case l == Resume:
		t.resume(i)
	case l == Cancel:
		t.intent(i, OnCancelled, fact{text: "cancelled"})
	}
}

func (t *turn) ignore(what, why string) { t.step.Ignored = append(t.step.Ignored, Ignored{what, why}) }

// binding is a table with what its names stand for.
type binding[T any] struct {
	table   *machine.Table
	guards  map[string]func(*turn, T, fact) bool
	effects map[string]func(*turn, T, fact)
}

// fire answers an event by the first rule of a table that holds, and returns where that leads. An event that means
// nothing in a state is ignored: most come from others, or late.
func fire[T any](t *turn, b *binding[T], x T, at *State, since *time.Time, id string, on On, f fact) bool {
	from := *at
	r, err := b.table.Next(string(from), string(on), func(name string) bool { return b.guards[name](t, x, f) })
	if err != nil {
		if f.m != nil || f.ans != nil || f.core != nil {
			t.ignore(b.table.Name+" "+string(from), string(on))
		}
		return false
	}
	if to := State(r.To); to != from {
		*at, *since = to, t.now
		move := Move{At: t.now, Machine: b.table.Name, ID: id, From: from, To: to, On: on, Reason: f.text}
		if f.m != nil {
			move.Node, move.Generation = f.m.From, f.m.Generation
		}
		t.step.Moves = append(t.step.Moves, move)
	}
	for _, do := range r.Do {
		b.effects[do](t, x, f)
	}
	return *at != from
}

func (t *turn) intent(i *Intent, on On, f fact) {
	fire(t, &intents, i, &i.State, &i.Since, i.ID, on, f)
}

// work fires an event of a work; the coordinator and the works that depend on it learn where that leads.
func (t *turn) work(w *Work, on On, f fact) {
	from := w.State
	if fire(t, &works, w, &w.State, &w.Since, w.ID, on, f) {
		t.moved(w, from)
		if w.over() || w.State == Assembling {
			t.roomSoon()
		}
		t.raise(func() { t.coordinator(OnTransactionStateTransition, fact{}) })
	}
}

func (t *turn) originator(on On, f fact) {
	s := &t.d.Seat
	fire(t, &originators, s, &s.Originator, &s.OriginatorSince, "", on, f)
}

func (t *turn) coordinator(on On, f fact) {
	s := &t.d.Seat
	fire(t, &coordinators, s, &s.Coordinator, &s.CoordinatorSince, "", on, f)
}
