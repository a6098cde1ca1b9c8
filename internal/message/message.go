package message

import (
	"time"

	"github.com/postern-dev/postern/internal/machine"
)

// Status is where a message is in its life.
type Status string

// The statuses of a message.
const (
	Dispatched   Status = "dispatched"
	Acknowledged Status = "acknowledged"
	Processed    Status = "processed"
	Error        Status = "error"
)

// Ended says whether a status is an end.
func (s Status) Ended() bool { return s == Processed || s == Error }

// Statuses lists them all.
var Statuses = []Status{Dispatched, Acknowledged, Processed, Error}

// Event is what can happen to a message.
type Event string

// The events of a message, in the order of its life.
const (
	OnCreated      Event = "Created"
	OnRouted       Event = "Routed"    // it was let go to a peer
	OnDelivered    Event = "Delivered" // it stands in msg_in
	OnReceived     Event = "Received"  // a receiver was handed it, under a lease
	OnAcknowledged Event = "Acknowledged"
	OnResult       Event = "ResultReceived"
	OnProcessed    Event = "Processed" // its receiver says so
	OnDeadline     Event = "Deadline"
	OnRefused      Event = "Refused" // by rights, by the target, or by its sender, who takes it back
)

// Message is the life of a message (S5.6).
var Message = machine.Table{
	Name:     "message",
	Follows:  "the coordinator of Hero",
	Initial:  string(Dispatched),
	Terminal: []string{string(Processed), string(Error)},
	Events: []string{string(OnCreated), string(OnRouted), string(OnDelivered), string(OnReceived),
		string(OnAcknowledged), string(OnResult), string(OnProcessed), string(OnDeadline), string(OnRefused)},
	Rules: []machine.Rule{
		rule(machine.Start, OnCreated, Dispatched, "await_delivery"),
		rule(Dispatched, OnRouted, Dispatched),
		rule(Dispatched, OnDelivered, Dispatched, "await_ack"),
		rule(Dispatched, OnReceived, Dispatched, "lease"),
		rule(Dispatched, OnAcknowledged, Acknowledged, "await_result"),
		rule(Acknowledged, OnResult, Processed),
		rule(Acknowledged, OnProcessed, Processed),
		rule(Dispatched, OnDeadline, Error, "name_deadline"),
		rule(Acknowledged, OnDeadline, Error, "name_deadline"),
		rule(Dispatched, OnRefused, Error),
		rule(Acknowledged, OnRefused, Error),
	},
}

func rule(from Status, on Event, to Status, do ...string) machine.Rule {
	return machine.Rule{From: string(from), On: string(on), To: string(to), Do: do}
}

// Which deadline runs, as errors name them.
const (
	CodeTimeout       = "timeout"
	CodeTimeoutAck    = "timeout_ack"
	CodeTimeoutResult = "timeout_result"
)

// Other codes with which a message ends in error.
const (
	CodeForbidden = "forbidden" // its sender may not send it there any more
	CodeRejected  = "rejected"  // its receiver would not have it
	CodeCancelled = "cancelled" // its sender took it back
	CodeConflict  = "idempotency_conflict"
)

// Timeouts are the lengths of the three deadlines; zero: there is none.
type Timeouts struct {
	Deliver, Ack, Result time.Duration
}

// Step is what a decision about a message leads to.
type Step struct {
	From, To   Status
	On         Event
	Lease      bool       // its fence rises, and no other receiver is handed it for a time
	Due        *time.Time // the deadline that runs from now on; nil: none
	Code, Text string     // of an end by a deadline
}

// facts is what a decision about a message knows besides its status.
type facts struct {
	t         Timeouts
	delivered bool
	due       *time.Time // the deadline that has run so far
	now       time.Time
}

func (f *facts) in(d time.Duration) *time.Time {
	if d <= 0 {
		return nil
	}
	at := f.now.Add(d)
	return &at
}

var effects = map[string]func(*Step, *facts){
	"await_delivery": func(s *Step, f *facts) { s.Due = f.in(f.t.Deliver) },
	"await_ack":      func(s *Step, f *facts) { s.Due = f.in(f.t.Ack) },
	"await_result":   func(s *Step, f *facts) { s.Due = f.in(f.t.Result) },
	"lease":          func(s *Step, _ *facts) { s.Lease = true },
	"name_deadline":  func(s *Step, f *facts) { s.Code, s.Text = passed(s.From, f) },
}

// passed names the deadline that is over.
func passed(from Status, f *facts) (code, text string) {
	switch {
	case from == Acknowledged:
		return CodeTimeoutResult, "it was acknowledged, and had no result within " + f.t.Result.String() +
			" (timeout_result)"
	case f.delivered:
		return CodeTimeoutAck, "it was delivered, and not acknowledged within " + f.t.Ack.String() + " (timeout_ack)"
	}
	return CodeTimeout, "it was not delivered within " + f.t.Deliver.String() + " of its creation (timeout)"
}

// Next says what an event does to a message at a moment. delivered: it has reached msg_in; due: the deadline that has
// run so far. *machine.Illegal where the event means nothing: of a message that has ended, it is late.
func Next(from Status, on Event, t Timeouts, delivered bool, due *time.Time, now time.Time) (Step, error) {
	r, err := Message.Next(string(from), string(on), func(string) bool { return false })
	if err != nil {
		return Step{}, err
	}
	f := &facts{t: t, delivered: delivered, due: due, now: now}
	s := Step{From: from, To: Status(r.To), On: on}
	if s.From == s.To {
		s.Due = due
	}
	for _, do := range r.Do {
		effects[do](&s, f)
	}
	return s, nil
}
