package processor

import (
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/machine"
)

// State is where a batch is in its life.
type State string

// The states of a batch. The published design names Queued and Waiting_Callback; the others are ours.
const (
	Queued          State = "Queued"
	Executing       State = "Executing"
	TimedOut        State = "Timed_Out"
	WaitingCallback State = "Waiting_Callback"
	Done            State = "Done"
)

// Event is what can happen to a batch.
type Event string

// The events of the machine, in the order of its life.
const (
	Enqueued         Event = "Enqueued"
	Inserted         Event = "Inserted"
	Ticked           Event = "Tick"
	Succeeded        Event = "Succeeded"
	Failed           Event = "Failed"
	ResultLost       Event = "ResultLost"
	Returned         Event = "Returned"
	Undelivered      Event = "Undelivered"
	Unreached        Event = "Unreached"
	Retried          Event = "Retried"
	TTLOver          Event = "TTLOver"
	CallbackReceived Event = "CallbackReceived"
	CallbackDeadline Event = "CallbackDeadline"
	Expiry           Event = "Expiry"
	Evicted          Event = "Evicted"
)

// Machine is the life of a batch as S4.5 tells it, row by row.
var Machine = machine.Table{
	Name:     "batch",
	Follows:  "the processor of Timewave's Valence",
	Initial:  string(Queued),
	Terminal: []string{string(Done)},
	Events: []string{string(Enqueued), string(Inserted), string(Ticked), string(Succeeded), string(Failed), string(ResultLost), string(Returned), string(Undelivered), string(Unreached), string(Retried),
		string(TTLOver), string(CallbackReceived), string(CallbackDeadline), string(Expiry), string(Evicted)},
	Rules: []machine.Rule{
		rule(machine.Start, Enqueued, "expired", Done, "result_expired"),
		rule(machine.Start, Enqueued, "", Queued, "to_back"),
		rule(machine.Start, Inserted, "expired", Done, "result_expired"),
		rule(machine.Start, Inserted, "", Queued, "to_position"),
		rule(Queued, Ticked, "expired", Done, "result_expired"),
		rule(Queued, Ticked, "in_cooldown", Queued, "to_back"),
		rule(Queued, Ticked, "", Executing, "execute"),
		rule(Executing, Succeeded, "confirmation", WaitingCallback, "await_callback"),
		rule(Executing, Succeeded, "more_left", Queued, "next_action", "to_back"),
		rule(Executing, Succeeded, "", Done, "result_executed"),
		rule(Executing, Failed, "retries_left", Queued, "count_retry", "to_back"),
		rule(Executing, Failed, "", Done, "result_failed"),
		rule(Executing, ResultLost, "", Done, "result_unexpected"),
		rule(Executing, Returned, "", Done, "result_returned"),
		rule(Executing, Undelivered, "ttl_lasts", TimedOut, "result_timeout"),
		rule(Executing, Undelivered, "", Done, "result_timeout"),
		rule(Executing, Unreached, "retries_left", Queued, "count_retry", "leave_alone", "to_back"),
		rule(Executing, Unreached, "no_retry_logic", Queued, "leave_alone", "to_back"),
		rule(Executing, Unreached, "", Done, "result_failed"),
		rule(TimedOut, Retried, "ttl_lasts", Queued, "in_process", "to_back"),
		rule(TimedOut, Retried, "", Done, "result_timeout"),
		rule(TimedOut, TTLOver, "", Done, "result_timeout"),
		rule(WaitingCallback, CallbackReceived, "wrong_with_retries_left", Queued, "count_retry", "to_back"),
		rule(WaitingCallback, CallbackReceived, "wrong", Done, "result_failed"),
		rule(WaitingCallback, CallbackReceived, "more_left", Queued, "next_action", "to_back"),
		rule(WaitingCallback, CallbackReceived, "", Done, "result_executed"),
		rule(WaitingCallback, CallbackDeadline, "retries_left", Queued, "count_retry", "to_back"),
		rule(WaitingCallback, CallbackDeadline, "", Done, "result_failed"),
		rule(WaitingCallback, Expiry, "expired", Done, "result_expired"),
		rule(Queued, Evicted, "", Done, "result_removed"),
		rule(WaitingCallback, Evicted, "", Done, "result_removed"),
		rule(TimedOut, Evicted, "", Done, "result_removed"),
	},
}

func rule(from State, on Event, when string, to State, do ...string) machine.Rule {
	return machine.Rule{From: string(from), On: string(on), When: when, To: string(to), Do: do}
}

// Batch is some messages and how they are executed (S4.1), with how far that has come.
type Batch struct {
	ID         int64
	CreatedAt  time.Time
	State      State
	Priority   Priority
	Actions    Actions
	Messages   []Message
	Expiration *time.Time
	TTL        *time.Time // until when it may be sent again after it was not delivered; nil: never (S4.14)
	Delivered  bool       // a worker has taken something of it
	DeliverAs  string     // the type as which it goes whole to the processor of another installation; "": it is executed from here

	Index          int // the action that is next, or being executed, or waits for its callback
	Retries        int // of that action; of an atomic batch, as a whole
	CooldownUntil  *time.Time
	CooldownHeight *int64
	LeftAlone      bool    // its last try came to nothing because its worker is away
	Result         *Result // of one that is Done, or Timed_Out
}

// Facts is what a decision about a batch knows besides the batch.
type Facts struct {
	Now     time.Time
	Height  int64
	Error   string    // why the execution failed
	Unclear bool      // of one that failed: it may have been executed all the same
	Wrong   bool      // the callback does not say what it must
	Result  Result    // that came back from another installation
	Away    time.Time // until when the worker is left alone that could not be reached
}

// Step is what a decision leads to: the batch as it is then, and where it goes in its line.
type Step struct {
	Batch
	From State
	On   Event
	Move Move
}

// Move is what happens to a batch's place.
type Move int

// Where a batch goes: it stands nowhere then, or it stands where it is put.
const (
	Away Move = iota
	Back
	AtSpot
)

// texts of failures that no worker tells (S4.5)
const (
	textWrongCallback = "Invalid callback message received"
	textTimedOut      = "callback timed out"
)

var guards = map[string]func(b *Batch, f Facts) bool{
	"expired":      func(b *Batch, f Facts) bool { return b.Expiration != nil && b.Expiration.Before(f.Now) },
	"in_cooldown":  func(b *Batch, f Facts) bool { return b.Cools(f) },
	"confirmation": func(b *Batch, _ Facts) bool { return b.Actions.Confirmation(b.Index) != nil },
	"more_left":    func(b *Batch, _ Facts) bool { return b.Actions.Atomic == nil && b.Index+1 < len(b.Messages) },
	"retries_left": func(b *Batch, _ Facts) bool { return b.retriesLeft() },
	"no_retry_logic": func(b *Batch, _ Facts) bool {
		return b.Actions.Retry(b.Index) == nil
	},
	"ttl_lasts": func(b *Batch, f Facts) bool { return b.TTL != nil && f.Now.Before(*b.TTL) },
	"wrong":     func(_ *Batch, f Facts) bool { return f.Wrong },
	"wrong_with_retries_left": func(b *Batch, f Facts) bool {
		return f.Wrong && b.retriesLeft()
	},
}

var effects = map[string]func(s *Step, f Facts){
	"to_back":         func(s *Step, _ Facts) { s.Move = Back },
	"to_position":     func(s *Step, _ Facts) { s.Move = AtSpot },
	"execute":         func(*Step, Facts) {},
	"await_callback":  func(*Step, Facts) {},
	"next_action":     func(s *Step, _ Facts) { s.Index++; s.settleRetry() },
	"leave_alone":     func(s *Step, f Facts) { s.leaveAlone(f) },
	"count_retry":     func(s *Step, f Facts) { s.countRetry(f) },
	"result_executed": func(s *Step, _ Facts) { s.end(Result{Kind: Executed}) },
	"result_removed":  func(s *Step, _ Facts) { s.end(Result{Kind: RemovedByOwner}) },
	"result_expired":  func(s *Step, _ Facts) { s.end(Result{Kind: Expired, N: s.done()}) },
	"result_unexpected": func(s *Step, f Facts) {
		s.end(Result{Kind: UnexpectedError, N: s.done(), Reason: f.Error})
	},
	"result_returned": func(s *Step, f Facts) { s.take(f.Result) },
	"result_timeout":  func(s *Step, _ Facts) { s.end(Result{Kind: Timeout, Retriable: s.State == TimedOut}) },
	"in_process":      func(s *Step, _ Facts) { s.Result = nil },
	"result_failed":   func(s *Step, f Facts) { s.fail(f) },
}

// Decide says what an event does to a batch. Outcomes: a step, to be stored with its move; a Conflict
// "wrong_state" where the event means nothing, as an eviction of what is being executed.
func (b Batch) Decide(on Event, f Facts) (Step, error) {
	r, err := Machine.Next(string(b.State), string(on), func(name string) bool { return guards[name](&b, f) })
	if err != nil {
		return Step{}, fault.New(fault.Conflict, "wrong_state", "batch %d is %s: %s means nothing to it now", b.ID, b.State, on).Because(err)
	}
	s := Step{Batch: b, From: b.State, On: on}
	s.State = State(r.To)
	switch on {
	case Succeeded, Failed, Returned:
		s.Delivered = true
	case CallbackReceived:
		f.Error = textWrongCallback
	case CallbackDeadline:
		f.Error = textTimedOut
	}
	for _, do := range r.Do {
		effects[do](&s, f)
	}
	return s, nil
}

// Cools says whether the pause after a failure is not over: then a tick puts the batch to the back (S4.4).
func (b *Batch) Cools(f Facts) bool {
	return b.CooldownUntil != nil && f.Now.Before(*b.CooldownUntil) || b.CooldownHeight != nil && f.Height < *b.CooldownHeight
}

func (b *Batch) retriesLeft() bool {
	r := b.Actions.Retry(b.Index)
	return r != nil && (r.Times.Amount == nil || int64(b.Retries) < *r.Times.Amount)
}

func (b *Batch) settleRetry() {
	b.Retries, b.CooldownUntil, b.CooldownHeight, b.LeftAlone = 0, nil, nil, false
}

func (b *Batch) countRetry(f Facts) {
	b.Retries++
	b.CooldownUntil, b.CooldownHeight, b.LeftAlone = nil, nil, false
	i := b.Actions.Retry(b.Index).Interval
	if i.Seconds != nil {
		until := f.Now.Add(time.Duration(*i.Seconds) * time.Second)
		b.CooldownUntil = &until
	} else {
		height := f.Height + *i.Blocks
		b.CooldownHeight = &height
	}
}

// leaveAlone has the batch cool at least as long as its worker is left alone.
func (b *Batch) leaveAlone(f Facts) {
	b.LeftAlone = true
	if b.CooldownUntil == nil || b.CooldownUntil.Before(f.Away) {
		until := f.Away
		b.CooldownUntil = &until
	}
}

// done is how many actions were executed; none of an atomic batch is before all are.
func (b *Batch) done() int {
	if b.Actions.Atomic != nil {
		return 0
	}
	return b.Index
}

func (b *Batch) end(r Result) { b.Result = &r }

// fail ends a batch for good. Where it is unknown what became of its last action, it says neither that this was
// executed nor that it was not.
func (b *Batch) fail(f Facts) {
	switch n := b.done(); {
	case f.Unclear:
		b.end(Result{Kind: UnexpectedError, N: n, Reason: f.Error})
	case n > 0:
		b.end(Result{Kind: PartiallyExecuted, N: n, Reason: f.Error})
	default:
		b.end(Result{Kind: Rejected, Reason: f.Error})
	}
}
