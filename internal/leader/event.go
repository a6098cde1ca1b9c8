package leader

import (
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/backoff"
	"github.com/postern-dev/postern/internal/machine"
)

// The states of an event (S1.5).
const (
	EventQueued     = "Queued"
	EventActive     = "Active"
	EventSuccessful = "Successful"
	EventDead       = "Dead"
)

// Events of the machine of an event of a source.
const (
	EventSaved    = "Saved"        // its source told of it, or somebody redrives one that is dead
	EventTaken    = "Taken"        // the engine has room for it
	ToolDone      = "ToolDone"     // the call of its tool has ended
	EventStale    = "Stale"        // that call has not ended for too long
	EventDropped  = "Dropped"      // its message was dropped by a channel
	ResultDone    = "ResultDone"   // the workflow has the result
	ResultFailed  = "ResultFailed" // the workflow will not have it
	TypeTool      = "leader.tool"  // the core transaction that calls the tool
	TypeResult    = "leader.result"
	PoolOfResults = "leader"
	ToolURL       = "tool:" // the worker of TypeTool, which is built in
)

// Outcomes of an event, as its result tells them (S1.14). Before there is one, it is "".
const (
	OutcomeSuccessful = "successful"
	OutcomeFailed     = "failed"
	OutcomeStale      = "stale"
)

// EventOfUID is the event whose first transactions have such a uid: "event:<id>:tool:<try>" and "event:<id>:result"
// (S1.5). False: it is of none.
func EventOfUID(uid string) (id uuid.UUID, ok bool) {
	rest, ok := strings.CutPrefix(uid, "event:")
	text, _, _ := strings.Cut(rest, ":")
	id, err := uuid.Parse(text)
	return id, ok && err == nil
}

// Event is the life of an event.
var Event = machine.Table{
	Name:     "event",
	Follows:  "the leader of Talus Nexus",
	Initial:  EventQueued,
	Terminal: []string{EventSuccessful, EventDead},
	Events:   []string{EventSaved, EventTaken, ToolDone, EventStale, EventDropped, ResultDone, ResultFailed},
	Rules: []machine.Rule{
		{From: machine.Start, On: EventSaved, When: "undecodable", To: EventDead},
		{From: machine.Start, On: EventSaved, To: EventQueued, Do: []string{"offer"}},
		{From: EventQueued, On: EventTaken, To: EventActive, Do: []string{"raise_fence"}},
		{From: EventActive, On: ToolDone, When: "tool_successful", To: EventActive,
			Do: []string{"succeed", "send_result"}},
		{From: EventActive, On: ToolDone, When: "tries_left", To: EventQueued, Do: []string{"count_retry", "back_off"}},
		{From: EventActive, On: ToolDone, When: "retriable", To: EventActive,
			Do: []string{"exhaust", "fail", "send_result"}},
		{From: EventActive, On: ToolDone, To: EventActive, Do: []string{"fail", "send_result"}},
		{From: EventActive, On: EventStale, To: EventActive, Do: []string{"raise_fence", "grow_stale", "send_result"}},
		{From: EventQueued, On: EventDropped, To: EventActive, Do: []string{"fail", "send_result"}},
		{From: EventActive, On: EventDropped, When: "no_outcome", To: EventActive, Do: []string{"fail", "send_result"}},
		{From: EventActive, On: EventDropped, To: EventDead, Do: []string{"alarm"}},
		{From: EventActive, On: ResultDone, When: "outcome_successful", To: EventSuccessful},
		{From: EventActive, On: ResultDone, To: EventDead},
		{From: EventActive, On: ResultFailed, To: EventDead, Do: []string{"alarm"}},
	},
}

// EventFacts is what a decision about an event goes by.
type EventFacts struct {
	Undecodable         bool
	Outcome             string // as decided before
	Retried, MaxRetries int
	Class               Class // of a call that has ended
	Code, Error         string
	After               time.Duration // the tool wants to be left alone for so long
}

// Texts that stand on an event (S1.5).
const (
	CodeExhausted  = "retries_exhausted"
	CodeStale      = "stale"
	CodeSubmission = "terminal_submission_failure"
)

// EventStep is what is to be done about an event.
type EventStep struct {
	To         string
	Offer      bool          // to the engine
	RaiseFence bool          // work that is under way counts no longer
	CountRetry bool          // Wait is until its next try
	Wait       time.Duration //
	SendResult bool          // the workflow is to be told Outcome
	Outcome    string
	Code       string
	Error      string
	Alarm      bool // an operator should look
}

// maxBackoff is the longest wait between two calls of a tool for one event (S1.5).
const maxBackoff = 5 * time.Minute

var eventGuards = map[string]func(EventFacts) bool{
	"undecodable":        func(f EventFacts) bool { return f.Undecodable },
	"tool_successful":    func(f EventFacts) bool { return f.Class == Successful },
	"tries_left":         func(f EventFacts) bool { return f.Class == Retriable && f.Retried < f.MaxRetries },
	"retriable":          func(f EventFacts) bool { return f.Class == Retriable },
	"no_outcome":         func(f EventFacts) bool { return f.Outcome == "" },
	"outcome_successful": func(f EventFacts) bool { return f.Outcome == OutcomeSuccessful },
}

var eventEffects = map[string]func(*EventStep, EventFacts){
	"offer":       func(s *EventStep, _ EventFacts) { s.Offer = true },
	"raise_fence": func(s *EventStep, _ EventFacts) { s.RaiseFence = true },
	"count_retry": func(s *EventStep, _ EventFacts) { s.CountRetry = true },
	"back_off": func(s *EventStep, f EventFacts) {
		s.Wait = max(backoff.Doubling(f.Retried+1, time.Second, maxBackoff), f.After)
	},
	"send_result": func(s *EventStep, _ EventFacts) { s.SendResult = true },
	"succeed":     func(s *EventStep, _ EventFacts) { s.Outcome, s.Code, s.Error = OutcomeSuccessful, "", "" },
	"fail":        func(s *EventStep, _ EventFacts) { s.Outcome = OutcomeFailed },
	"exhaust": func(s *EventStep, f EventFacts) {
		s.Code, s.Error = CodeExhausted, "retries exhausted: "+f.Error
	},
	"grow_stale": func(s *EventStep, _ EventFacts) {
		s.Outcome, s.Code, s.Error = OutcomeStale, CodeStale, "the call of its tool did not end in time"
	},
	"alarm": func(s *EventStep, f EventFacts) {
		s.Alarm, s.Code, s.Error = true, CodeSubmission, CodeSubmission+": "+f.Error
	},
}

// NextEvent decides what happens to an event in a state, machine.Start for a new one. Code and Error of the step
// are what is to stand on the event from then on. *machine.Illegal: it means nothing there, as what comes after
// the end.
func NextEvent(state, on string, f EventFacts) (EventStep, error) {
	r, err := Event.Next(state, on, func(name string) bool { return eventGuards[name](f) })
	if err != nil {
		return EventStep{}, err
	}
	s := EventStep{To: r.To, Outcome: f.Outcome, Code: f.Code, Error: f.Error}
	for _, name := range r.Do {
		eventEffects[name](&s, f)
	}
	return s, nil
}
