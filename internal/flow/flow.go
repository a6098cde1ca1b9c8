package flow

import "github.com/postern-dev/postern/internal/machine"

// Status is where a flow is in its life.
type Status string

// The statuses of a flow.
const (
	FlowDispatched Status = "dispatched"
	FlowWaiting    Status = "waiting_for_prerequisites"
	FlowStarted    Status = "started"
	FlowFinished   Status = "finished"
	FlowError      Status = "error"
)

// Ended says whether a status is an end.
func (s Status) Ended() bool { return s == FlowFinished || s == FlowError }

// Event is what can happen to a flow.
type Event string

// The events of a flow, in the order of its life.
const (
	FlowCreated   Event = "Created"
	FlowReleased  Event = "Released"    // it was started: its jobs are posted
	FlowBegun     Event = "JobStarted"  // a runner holds the first of its jobs
	FlowAdvanced  Event = "JobFinished" // one or more of its jobs have finished, or were removed
	FlowFailed    Event = "JobFailed"   // a job of it is in error
	FlowCancelled Event = "Cancelled"
)

// Flow is the life of a flow (S5.3).
var Flow = machine.Table{
	Name:     "flow",
	Follows:  "the coordinator of Hero",
	Initial:  string(FlowDispatched),
	Terminal: []string{string(FlowFinished), string(FlowError)},
	Events: []string{string(FlowCreated), string(FlowReleased), string(FlowBegun), string(FlowAdvanced),
		string(FlowFailed), string(FlowCancelled)},
	Rules: []machine.Rule{
		ofFlow(machine.Start, FlowCreated, "", FlowDispatched),
		ofFlow(FlowDispatched, FlowReleased, "empty", FlowStarted),
		ofFlow(FlowDispatched, FlowReleased, "none_may_start", FlowWaiting, "post_jobs"),
		ofFlow(FlowDispatched, FlowReleased, "", FlowDispatched, "post_jobs"),
		ofFlow(FlowDispatched, FlowBegun, "", FlowStarted),
		ofFlow(FlowWaiting, FlowBegun, "", FlowStarted),
		ofFlow(FlowStarted, FlowAdvanced, "all_finished", FlowFinished, "aggregate"),
		ofFlow(FlowStarted, FlowAdvanced, "", FlowStarted),
		ofFlow(FlowDispatched, FlowFailed, "", FlowError, "abort_rest"),
		ofFlow(FlowWaiting, FlowFailed, "", FlowError, "abort_rest"),
		ofFlow(FlowStarted, FlowFailed, "", FlowError, "abort_rest"),
		ofFlow(FlowDispatched, FlowCancelled, "", FlowError, "abort_rest"),
		ofFlow(FlowWaiting, FlowCancelled, "", FlowError, "abort_rest"),
		ofFlow(FlowStarted, FlowCancelled, "", FlowError, "abort_rest"),
	},
}

func ofFlow(from Status, on Event, when string, to Status, do ...string) machine.Rule {
	return machine.Rule{From: string(from), On: string(on), When: when, To: string(to), Do: do}
}

// Facts is what a decision about a flow knows besides its status.
type Facts struct {
	Jobs     int // that it has
	Finished int // of them
	Open     int // of those that wait for no other job, how many may start now
}

// Step is what a decision about a flow leads to.
type Step struct {
	From, To  Status
	On        Event
	Post      bool // its jobs are posted
	Aggregate bool // its result is made of theirs
	Abort     bool // those that have not ended do not go on
}

var flowGuards = map[string]func(Facts) bool{
	"empty":          func(f Facts) bool { return f.Jobs == 0 },
	"none_may_start": func(f Facts) bool { return f.Open == 0 },
	"all_finished":   func(f Facts) bool { return f.Finished == f.Jobs },
}

var flowEffects = map[string]func(*Step){
	"post_jobs":  func(s *Step) { s.Post = true },
	"aggregate":  func(s *Step) { s.Aggregate = true },
	"abort_rest": func(s *Step) { s.Abort = true },
}

// Next says what an event does to a flow. *machine.Illegal where the event means nothing.
func Next(from Status, on Event, f Facts) (Step, error) {
	r, err := Flow.Next(string(from), string(on), func(name string) bool { return flowGuards[name](f) })
	if err != nil {
		return Step{}, err
	}
	s := Step{From: from, To: Status(r.To), On: on}
	for _, do := range r.Do {
		flowEffects[do](&s)
	}
	return s, nil
}
