package sequencer

// Event is what happens to a transaction at the head of its queue, as S2.5 names it.
type Event string

const (
	Posted            Event = "Posted"
	SenderBound       Event = "SenderBound"
	Accepted          Event = "Accepted"
	Completed         Event = "Completed"
	WorkerLost        Event = "WorkerLost"
	Rejected          Event = "Rejected"     // the worker says that it can never be done
	Unresolvable      Event = "Unresolvable" // its outcome is unknown, and its worker cannot be asked
	DispatchError     Event = "DispatchError"
	DispatchTimeout   Event = "DispatchTimeout"
	NodeLost          Event = "NodeLost"
	Restarted         Event = "Restarted"
	StatusUnknown     Event = "StatusUnknown" // ours: /status never saw the token (S2.10)
	Unreadable        Event = "Unreadable"    // ours: the same token goes out again, since its answer could not be read
	InclusionStarted  Event = "InclusionStarted"
	StatusPending     Event = "StatusPending"
	StatusUnreachable Event = "StatusUnreachable"
	Included          Event = "Included"
	InclusionFailed   Event = "InclusionFailed"
	InclusionTimeout  Event = "InclusionTimeout"
	RetryStarted      Event = "RetryStarted"
	DelayElapsed      Event = "DelayElapsed"
	Cancel            Event = "Cancel"
	Abandoned         Event = "Abandoned"        // ours (S2.21)
	FoundDone         Event = "FoundDone"        // ours: held, and an operator says that it was done
	FoundNotDone      Event = "FoundNotDone"     // ours: held, and an operator says that it was not
	DependencyFailed  Event = "DependencyFailed" // ours: what it depends on did not end DONE (S2.15)
	Refused           Event = "Refused"          // ours: staged by SQL, and cannot be accepted when it is drained
)

// Events lists every event in the order of S2.5.
var Events = []Event{
	Posted, SenderBound, Accepted, Completed, WorkerLost, Rejected, Unresolvable, DispatchError, DispatchTimeout,
	NodeLost, Restarted, StatusUnknown, Unreadable, InclusionStarted, StatusPending, StatusUnreachable, Included,
	InclusionFailed, InclusionTimeout, RetryStarted, DelayElapsed, Cancel, DependencyFailed, Abandoned, FoundDone,
	FoundNotDone, Refused,
}

func eventNames() []string {
	names := make([]string, len(Events))
	for i, e := range Events {
		names[i] = string(e)
	}
	return names
}
