package processor

import (
	"encoding/json"
	"fmt"
	"time"
)

// Envelope is a batch on its way to the processor of another installation, which executes it by its own machine, with
// the retry logic and the callbacks of the batch (S4.14). The domain of its functions is what the sender calls that
// processor.
type Envelope struct {
	ID         int64      `json:"id"` // at the sender
	CreatedAt  time.Time  `json:"created_at"`
	Actions    Actions    `json:"actions_config"`
	Messages   []Message  `json:"msgs"`
	Priority   Priority   `json:"priority"`
	Expiration *time.Time `json:"expiration_time,omitempty"`
}

// envelope is the same text however often the batch is sent: the receiver compares it.
func (b *Batch) envelope() json.RawMessage {
	e := Envelope{ID: b.ID, CreatedAt: b.CreatedAt.UTC(), Actions: b.Actions,
		Messages: b.Messages, Priority: b.Priority}
	if b.Expiration != nil {
		at := b.Expiration.UTC()
		e.Expiration = &at
	}
	text, _ := json.Marshal(e)
	return text
}

// Name is what a batch is called beyond its installation. Ids alone may come again there, once a backup was restored.
func (e *Envelope) Name() string { return fmt.Sprintf("%d@%d", e.ID, e.CreatedAt.UnixMicro()) }

// To gives a batch to the processor that received it: what the sender calls its domain is this one's name.
func (e *Envelope) To(name string) {
	for i := range e.Actions.Functions() {
		e.Actions.Functions()[i].Domain = name
	}
}

// take ends a batch with the result that came back. One that cannot be a result of this batch says nothing of what was
// executed.
func (b *Batch) take(r Result) {
	switch {
	case r.Kind == Executed, r.Kind == Rejected, r.Kind == RemovedByOwner, r.Kind == UnexpectedError,
		r.Kind == Timeout && !r.Retriable, r.Kind == Expired && r.N >= 0 && r.N <= len(b.Messages):
	case r.Kind == PartiallyExecuted && b.Actions.Atomic == nil && r.N > 0 && r.N < len(b.Messages):
		b.Index = r.N
	default:
		r = Result{Kind: UnexpectedError, Reason: fmt.Sprintf("the result %q (%d of %d) that came back is none",
			r.Kind, r.N, len(b.Messages))}
	}
	b.end(r)
}
