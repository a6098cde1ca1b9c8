package outbox

// State is the state of a transaction (S2.2). It is derived, never stored before it is terminal.
type State string

const (
	WAITING     State = "WAITING"
	DISPATCHING State = "DISPATCHING"
	REVISION    State = "REVISION"
	RETRY       State = "RETRY"
	DONE        State = "DONE"
	FAILED      State = "FAILED"
	UNRESOLVED  State = "UNRESOLVED"
	CANCELLED   State = "CANCELLED"
)

// States lists every transaction state in the order in which people read them.
var States = []State{WAITING, DISPATCHING, REVISION, RETRY, DONE, FAILED, UNRESOLVED, CANCELLED}

// Code is the report code of the reference implementation (S2.2), 0 for an unknown state.
func (s State) Code() int {
	switch s {
	case WAITING:
		return 101
	case REVISION:
		return 102
	case DONE:
		return 103
	case RETRY:
		return 104
	case FAILED:
		return 105
	case UNRESOLVED:
		return 106
	case DISPATCHING:
		return 107
	case CANCELLED:
		return 108
	}
	return 0
}

// Terminal says whether nothing can leave s any more (S2.6).
func (s State) Terminal() bool {
	return s == DONE || s == FAILED || s == UNRESOLVED || s == CANCELLED
}

// Phase is what a queue is doing with its head, as stored in the queue row.
type Phase string

const (
	PhaseIdle             Phase = "IDLE"              // nothing waits
	PhaseReady            Phase = "READY"             // the head may go; no node has it
	PhaseHeld             Phase = "HELD"              // the head may not go yet (not_before, suspended)
	PhaseDispatching      Phase = "DISPATCHING"       // the worker is being called, or its answer is unknown
	PhaseInclusion        Phase = "INCLUSION"         // accepted; not polled yet
	PhaseWaitingInclusion Phase = "WAITING_INCLUSION" // accepted; polled
	PhaseRetry            Phase = "RETRY"             // failed; the delay has not begun
	PhaseDelay            Phase = "DELAY"             // failed; waits for its next attempt
)

// Phases lists every phase in the order of a transaction's life.
var Phases = []Phase{PhaseIdle, PhaseReady, PhaseHeld, PhaseDispatching, PhaseInclusion,
	PhaseWaitingInclusion, PhaseRetry, PhaseDelay}

// InFlight says whether a queue in this phase has a transaction in flight (cur is set).
func (p Phase) InFlight() bool {
	switch p {
	case PhaseDispatching, PhaseInclusion, PhaseWaitingInclusion, PhaseRetry, PhaseDelay:
		return true
	}
	return false
}

// Transaction is the state of the transaction in flight of a queue in this phase (S2.3).
func (p Phase) Transaction() State {
	switch p {
	case PhaseDispatching:
		return DISPATCHING
	case PhaseInclusion, PhaseWaitingInclusion:
		return REVISION
	case PhaseRetry, PhaseDelay:
		return RETRY
	}
	return WAITING
}

// QueueState is the state of a queue, and of the sender bound to it, as seed 2 names them (S2.2, S2.3).
type QueueState string

const (
	FREE              QueueState = "FREE"
	BLOCKED           QueueState = "BLOCKED"
	QueueRETRY        QueueState = "RETRY"
	DELAY             QueueState = "DELAY"
	INCLUSION         QueueState = "INCLUSION"
	WAITING_INCLUSION QueueState = "WAITING_INCLUSION"
)

// QueueStates lists every queue state in the order of their codes 201 to 206.
var QueueStates = []QueueState{FREE, BLOCKED, QueueRETRY, DELAY, INCLUSION, WAITING_INCLUSION}

// Queue is the seed's name of a phase (S2.3).
func (p Phase) Queue() QueueState {
	switch p {
	case PhaseDispatching:
		return BLOCKED
	case PhaseInclusion:
		return INCLUSION
	case PhaseWaitingInclusion:
		return WAITING_INCLUSION
	case PhaseRetry:
		return QueueRETRY
	case PhaseDelay:
		return DELAY
	}
	return FREE
}

// Code is the report code of the reference implementation (S2.2), 0 for an unknown state.
func (s QueueState) Code() int {
	for i, q := range QueueStates {
		if q == s {
			return 201 + i
		}
	}
	return 0
}
