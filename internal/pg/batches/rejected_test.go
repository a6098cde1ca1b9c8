package batches_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/processor"
)

// rejecting is how a worker says that something can never be done.
func rejecting(text string) outbox.Answer {
	return outbox.Answer{Class: outbox.ClassRejected, Code: "DECLINED", Message: text}
}

// S4.6: an action that its worker rejects has failed like any other: it is tried again where its retry logic says so,
// and then its batch is rejected with the words of the worker.
func TestARejectedActionFailsInItsBatch(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	v := p.enqueue(processor.Med, 1, false, retries(1, 0))
	p.ticks(rejecting("declined"), `executed 1 {"add":{"i":0}}`, `executed 1 {"add":{"i":0}}`)
	p.ended(v, processor.Result{Kind: processor.Rejected, Reason: "declined"})
	w := p.enqueue(processor.Med, 2, false, nil)
	p.ticks(pgworld.Done(), `executed 2 {"add":{"i":0}}`)
	p.ticks(rejecting("declined"), `executed 2 {"add":{"i":1}}`)
	p.ended(w, processor.Result{Kind: processor.PartiallyExecuted, N: 1, Reason: "declined"})
	atomic := p.enqueue(processor.High, 2, true, nil)
	p.ticks(rejecting("declined"), `executed 3 [{"add":{"i":0}},{"add":{"i":1}}]`)
	p.ended(atomic, processor.Result{Kind: processor.Rejected, Reason: "declined"})
}
