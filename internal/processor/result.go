package processor

// ResultKind is how a batch ended, as the API spells it (S4.7). The zero value is of one that has not ended.
type ResultKind string

// The results of batches. InProcess stands for none yet, where a result is asked for.
const (
	InProcess         ResultKind = "in_process"
	Executed          ResultKind = "executed"
	Rejected          ResultKind = "rejected"           // nothing was executed: Reason
	PartiallyExecuted ResultKind = "partially_executed" // N actions were executed: Reason
	RemovedByOwner    ResultKind = "removed_by_owner"
	Expired           ResultKind = "expired" // after N actions
	// it was not delivered to its domain in time; Retriable while its ttl lasts
	Timeout         ResultKind = "timeout"
	UnexpectedError ResultKind = "unexpected_error" // it is unknown how its last execution ended: Reason
)

// ResultKinds lists all that a batch can end with.
var ResultKinds = []ResultKind{Executed, Rejected, PartiallyExecuted, RemovedByOwner, Expired, Timeout, UnexpectedError}

// Result is how a batch ended.
type Result struct {
	Kind      ResultKind `json:"kind"`
	N         int        `json:"n,omitempty"`
	Reason    string     `json:"reason,omitempty"`
	Retriable bool       `json:"retriable,omitempty"`
}

// Burns says whether the call that was held for a batch is used up by this result, or given back (S4.13).
func (r Result) Burns() bool {
	return r.Kind == Executed || r.Kind == PartiallyExecuted || r.Kind == RemovedByOwner
}
