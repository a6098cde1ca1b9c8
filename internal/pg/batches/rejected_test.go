package batches_test

import (
	"fmt"
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/batches"
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

// It is unknown what became of an action whose transaction ended UNRESOLVED: it may have been executed, so that its
// batch is neither rejected nor executed in part. A retry logic tries it again first.
func TestAnActionOfUnknownOutcomeIsNotCalledRejected(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	unknown := func() {
		t.Helper()
		_, err := p.S.Batches.Tick(p.Ctx, p.By, "main")
		p.Must(err)
		for _, l := range p.Claim(p.node, pgworld.Everything()) {
			_, err := p.S.Abandon(p.Ctx, p.By, l.ID())
			p.Must(err)
		}
		p.Must(p.S.Batches.AdvanceProcessor(p.Ctx, p.ID, "main"))
	}
	ended := func(v *batches.Batch, n int) {
		t.Helper()
		got := p.batch(v.ID)
		if r := got.Result; r == nil || r.Kind != processor.UnexpectedError || r.N != n || r.Reason == "" {
			t.Errorf("batch %d is %s with %+v", v.ID, got.State, r)
		}
	}
	first := p.enqueue(processor.Med, 1, false, retries(1, 0))
	unknown()
	if got := p.batch(first.ID); got.State != processor.Queued || got.Retries != 1 {
		t.Errorf("after one try it is %s, %d retries", got.State, got.Retries)
	}
	unknown()
	ended(first, 0)
	second := p.enqueue(processor.Med, 2, false, nil)
	p.ticks(pgworld.Done(), fmt.Sprintf(`executed %d {"add":{"i":0}}`, second.ID))
	unknown()
	ended(second, 1)
	atomic := p.enqueue(processor.Med, 2, true, nil)
	unknown()
	ended(atomic, 0)
	pgworld.HoldsTrue(t, p.Ctx, p.S.Pool())
}
