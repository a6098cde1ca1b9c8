package outbox

import (
	"encoding/json"
	"time"
)

// Class sorts what can go wrong with a call to a worker (S2.8). The empty class means that nothing did.
type Class string

const (
	ClassBlocked   Class = "blocked"   // the worker cannot be reached, or cannot work now: no retry consumed
	ClassAmbiguous Class = "ambiguous" // it may have been done: ask before anything is sent again
	ClassRejected  Class = "rejected"  // it can never be done
	ClassRetry     Class = "retry"     // it failed; try again later
)

// Scope says what a worker blocks that answers blocked (S2.8).
type Scope string

const (
	ScopeQueue  Scope = "queue"  // the queue of the transaction: others may go on
	ScopeSender Scope = "sender" // all that goes out through its sender
	ScopeWorker Scope = "worker" // all that goes where the call went
)

// Result is the worker's TxnResult (S2.7).
type Result struct {
	Hash  string          `json:"hash,omitempty"`
	Done  json.RawMessage `json:"done,omitempty"`  // nil when not set (null, and {} beside a hash key, S2.7)
	Data  json.RawMessage `json:"data,omitempty"`  // replaces the transaction's data from here on
	Nonce string          `json:"nonce,omitempty"` // digits
	Fee   string          `json:"fee,omitempty"`   // digits
	// Members are those beside the others, and error as it came: nil if there are none. They are the worker's own, and
	// come back to it.
	Members json.RawMessage `json:"-"`
}

// Answer is what came of one dispatch call, already classified.
type Answer struct {
	Class     Class
	Result    Result
	Code      string        // the worker's error code or ours ("timeout", "connection_refused"), "" without error
	Message   string        // a sentence for people, at most 1 KiB
	After     time.Duration // least delay before the next try, 0 if none was named
	Until     time.Time     // class blocked or ambiguous: not before this moment, zero if none was named
	Scope     Scope         // class blocked: queue, sender or worker
	Unsent    bool          // certain: not one byte of the call was written to the wire
	Told      bool          // the worker itself says this class, in a body of the contract
	StartedAt time.Time
	Elapsed   time.Duration
}

// NothingDone says whether it is certain that this call had no effect: it was not written, or the worker itself says
// that nothing was done. Any other answer may be that of a proxy in between.
func (a Answer) NothingDone() bool { return a.Unsent || a.Told && a.Class == ClassBlocked }

// StatusState is what a worker knows of a hash or token (S2.7), or why we do not know it.
type StatusState string

const (
	StatusPending     StatusState = "pending"
	StatusIncluded    StatusState = "included"
	StatusFailed      StatusState = "failed"
	StatusUnknown     StatusState = "unknown"     // it never saw this token or hash
	StatusUnreachable StatusState = "unreachable" // no answer came: says nothing about the transaction
	StatusUnsupported StatusState = "unsupported" // the worker has no /status (404, 405, 501)
)

// Status is the answer to one status question.
type Status struct {
	State         StatusState
	Hash          string
	Nonce         string
	BlockHeight   string // digits, "" if not in a block
	Confirmations int    // 1 when included and the worker does not count
	FailureReason string // set when it failed in its block
	Final         bool   // of StatusFailed: to send it again would change nothing

	// Done is what a worker without blocks says that it ended with, "true" where it says nothing but done. Such a
	// status is StatusIncluded in no block, and as deep as can be. nil: the worker spoke of blocks.
	Done    json.RawMessage
	Message string // why it is unreachable
	Refused bool   // it is, since the settings of this process keep it from the address
}

// Hook is a call to the worker after the end of a transaction (S2.12).
type Hook string

const (
	OnSuccess Hook = "on-success"
	OnFailure Hook = "on-failure"
)
