package flow

import (
	"time"

	"github.com/postern-dev/postern/internal/machine"
)

// TryState is where a try is in its life.
type TryState string

// The states of a try.
const (
	Offered   TryState = "Offered"
	Held      TryState = "Held"
	Finished  TryState = "Finished"
	Failed    TryState = "Failed"
	Withdrawn TryState = "Withdrawn"
	Sent      TryState = "Sent"
)

// TryEvent is what can happen to a try.
type TryEvent string

// The events of a try, in the order of its life.
const (
	TryOffered  TryEvent = "Offered"
	TryClaimed  TryEvent = "Claimed"
	TryFinished TryEvent = "Finished"
	TryFailed   TryEvent = "Failed"
	TryTimedOut TryEvent = "TimedOut"
	TryLapsed   TryEvent = "Lapsed" // its runner was silent for too long, or began anew
	// its runner lives, and does not know of it: the answer to its claim was lost
	TryUnheld      TryEvent = "Unheld"
	TryWithdrawn   TryEvent = "Withdrawn"   // its job has ended before
	TryStopOverdue TryEvent = "StopOverdue" // its runner was told to stop, and did not
	TrySent        TryEvent = "Sent"        // a message carries it to another installation, in the commit that makes it
)

// MaxLapses is how often a try may lapse: the last time it has failed.
const MaxLapses = 3

// How long a runner has after the time of a try is over, and after it was told to stop: TERM, 10 s, KILL, and the way
// here.
const (
	TimeoutGrace = 15 * time.Second
	StopGrace    = 10 * time.Second
)

// Codes of failures that no script tells.
const (
	CodeRunnerLost  = "runner_lost"
	CodeTimedOut    = "timed_out"
	CodeStopped     = "stopped"
	CodeExit        = "exit"
	CodeCancelled   = "cancelled"
	CodeNeedTimeout = "prerequisite_timeout"
	CodeDependency  = "dependency_failed"
	CodeFlowAborted = "flow_aborted"
	CodeResultLost  = "result_lost"
	CodeInputs      = "inputs_too_large"
)

// Try is the life of a try. A stop, and then every end of it is final: it is not retried.
var Try = machine.Table{
	Name:     "job_try",
	Follows:  "no published design",
	Initial:  string(Offered),
	Terminal: []string{string(Finished), string(Failed), string(Withdrawn)},
	Events: []string{string(TryOffered), string(TryClaimed), string(TryFinished), string(TryFailed),
		string(TryTimedOut),
		string(TryLapsed), string(TryUnheld), string(TryWithdrawn), string(TryStopOverdue), string(TrySent)},
	Rules: []machine.Rule{
		try(machine.Start, TryOffered, "", Offered),
		try(Offered, TryClaimed, "", Held, "raise_fence"),
		try(Held, TryFinished, "", Finished, "record"),
		try(Held, TryFailed, "stopping", Failed, "record", "final"),
		try(Held, TryFailed, "", Failed, "record"),
		try(Held, TryTimedOut, "stopping", Failed, "record", "final"),
		try(Held, TryTimedOut, "", Failed, "record"),
		try(Held, TryLapsed, "stopping", Failed, "record", "final"),
		try(Held, TryLapsed, "lapses_left", Offered, "raise_fence", "count_lapse"),
		try(Held, TryLapsed, "", Failed, "record", "count_lapse"),
		try(Held, TryUnheld, "stopping", Failed, "record", "final"),
		try(Held, TryUnheld, "", Offered, "raise_fence"),
		try(Held, TryStopOverdue, "", Failed, "record", "final"),
		try(Offered, TryWithdrawn, "", Withdrawn, "record", "final"),
		try(Offered, TrySent, "", Sent),
		try(Sent, TryFinished, "", Finished, "record"),
		try(Sent, TryFailed, "", Failed, "record", "final"),
	},
}

func try(from TryState, on TryEvent, when string, to TryState, do ...string) machine.Rule {
	return machine.Rule{From: string(from), On: string(on), When: when, To: string(to), Do: do}
}

// TryFacts is what a decision about a try knows besides its state.
type TryFacts struct {
	Stopping bool // its job is to stop
	Lapses   int  // so far
}

// TryStep is what a decision about a try leads to.
type TryStep struct {
	From, To   TryState
	On         TryEvent
	RaiseFence bool
	CountLapse bool
	Record     bool // it has ended
	Final      bool // and no other try follows
}

var tryGuards = map[string]func(TryFacts) bool{
	"stopping":    func(f TryFacts) bool { return f.Stopping },
	"lapses_left": func(f TryFacts) bool { return f.Lapses+1 < MaxLapses },
}

var tryEffects = map[string]func(*TryStep){
	"raise_fence": func(s *TryStep) { s.RaiseFence = true },
	"count_lapse": func(s *TryStep) { s.CountLapse = true },
	"record":      func(s *TryStep) { s.Record = true },
	"final":       func(s *TryStep) { s.Final = true },
}

// NextTry says what an event does to a try. *machine.Illegal where the event means nothing.
func NextTry(from TryState, on TryEvent, f TryFacts) (TryStep, error) {
	r, err := Try.Next(string(from), string(on), func(name string) bool { return tryGuards[name](f) })
	if err != nil {
		return TryStep{}, err
	}
	s := TryStep{From: from, To: TryState(r.To), On: on}
	for _, do := range r.Do {
		tryEffects[do](&s)
	}
	return s, nil
}
