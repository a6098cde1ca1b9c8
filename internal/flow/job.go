package flow

import (
	"github.com/postern-dev/postern/internal/machine"
)

// JobStatus is where a job is in its life.
type JobStatus string

// The statuses of a job.
const (
	JobDispatched JobStatus = "dispatched"
	JobWaiting    JobStatus = "waiting_for_prerequisites"
	JobStarted    JobStatus = "started"
	JobFinished   JobStatus = "finished"
	JobError      JobStatus = "error"
)

// Ended says whether a status is an end.
func (s JobStatus) Ended() bool { return s == JobFinished || s == JobError }

// JobStatuses lists them all.
var JobStatuses = []JobStatus{JobDispatched, JobWaiting, JobStarted, JobFinished, JobError}

// JobEvent is what can happen to a job.
type JobEvent string

// The events of a job, in the order of its life.
const (
	JobCreated          JobEvent = "Created"
	JobReleased         JobEvent = "Released"         // its environment is frozen, and it is posted
	JobPrerequisitesMet JobEvent = "PrerequisitesMet" // it is offered to runners for the first time
	JobClaimed          JobEvent = "Started"          // a runner holds a try of it
	JobSucceeded        JobEvent = "Finished"
	JobFailed           JobEvent = "Failed"     // its last try failed
	JobImpossible       JobEvent = "Impossible" // what it needs failed, or did not come in time
	JobRefused          JobEvent = "Refused"    // its transaction ended without a try that did
	JobAborted          JobEvent = "Aborted"    // it was cancelled, or its flow is in error
)

// Job is the life of a job (S5.4). A retry is a try more, and no edge: the job stays started.
var Job = machine.Table{
	Name:     "job",
	Follows:  "the coordinator of Hero",
	Initial:  string(JobDispatched),
	Terminal: []string{string(JobFinished), string(JobError)},
	Events: []string{string(JobCreated), string(JobReleased), string(JobPrerequisitesMet), string(JobClaimed),
		string(JobSucceeded), string(JobFailed),
		string(JobImpossible), string(JobRefused), string(JobAborted)},
	Rules: []machine.Rule{
		job(machine.Start, JobCreated, "", JobDispatched),
		job(JobDispatched, JobReleased, "something_open", JobWaiting, "freeze", "post"),
		job(JobDispatched, JobReleased, "", JobDispatched, "freeze", "post"),
		job(JobDispatched, JobPrerequisitesMet, "", JobDispatched),
		job(JobWaiting, JobPrerequisitesMet, "", JobWaiting),
		job(JobDispatched, JobClaimed, "", JobStarted),
		job(JobWaiting, JobClaimed, "", JobStarted),
		job(JobStarted, JobClaimed, "", JobStarted),
		job(JobWaiting, JobImpossible, "", JobError),
		job(JobStarted, JobSucceeded, "", JobFinished, "keep_result"),
		job(JobStarted, JobFailed, "", JobError, "keep_partial"),
		job(JobDispatched, JobAborted, "", JobError, "withdraw"),
		job(JobWaiting, JobAborted, "", JobError, "withdraw"),
		job(JobStarted, JobAborted, "", JobStarted, "stop"),
		job(JobDispatched, JobRefused, "", JobError),
		job(JobWaiting, JobRefused, "", JobError),
		job(JobStarted, JobRefused, "", JobError),
	},
}

func job(from JobStatus, on JobEvent, when string, to JobStatus, do ...string) machine.Rule {
	return machine.Rule{From: string(from), On: string(on), When: when, To: string(to), Do: do}
}

// JobStep is what a decision about a job leads to.
type JobStep struct {
	From, To JobStatus
	On       JobEvent
	Post     bool // its transaction is posted
	Freeze   bool // its environment does not change any more
	Result   bool // the result of its last try is its own
	Partial  bool // so is what a try that failed has left
	Withdraw bool // its transaction and its offer are taken back
	Stop     bool // the runner that holds it is told to stop
}

var jobGuards = map[string]func(open bool) bool{
	"something_open": func(open bool) bool { return open },
}

var jobEffects = map[string]func(*JobStep){
	"post":         func(s *JobStep) { s.Post = true },
	"freeze":       func(s *JobStep) { s.Freeze = true },
	"keep_result":  func(s *JobStep) { s.Result = true },
	"keep_partial": func(s *JobStep) { s.Partial = true },
	"withdraw":     func(s *JobStep) { s.Withdraw = true },
	"stop":         func(s *JobStep) { s.Stop = true },
}

// NextJob says what an event does to a job. open: something that it needs has not ended. *machine.Illegal where the
// event means nothing.
func NextJob(from JobStatus, on JobEvent, open bool) (JobStep, error) {
	r, err := Job.Next(string(from), string(on), func(name string) bool { return jobGuards[name](open) })
	if err != nil {
		return JobStep{}, err
	}
	s := JobStep{From: from, To: JobStatus(r.To), On: on}
	for _, do := range r.Do {
		jobEffects[do](&s)
	}
	return s, nil
}

// End is how a transaction of a job has ended.
type End struct {
	Done     bool
	Tried    bool   // a try of it says how
	Depended bool   // it ended since something that it depends on failed
	Code     string // why it did not end well
}

// Event is what such an end is to a job. A job that has started ends by its try; what ended otherwise was refused, or
// taken back by a lever.
func (e End) Event(from JobStatus) JobEvent {
	switch {
	case e.Done && e.Tried && from == JobStarted:
		return JobSucceeded
	case e.Tried && !e.Done && from == JobStarted:
		return JobFailed
	case e.Depended && from == JobWaiting:
		return JobImpossible
	}
	return JobRefused
}
