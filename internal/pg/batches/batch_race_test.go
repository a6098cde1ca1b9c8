package batches_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/pg/batches"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/processor"
)

// The same request comes twice at once, by two processors that know nothing of each other: it makes one batch.
func TestAKeyMakesOneBatchWhoeverIsFirst(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	_, err := p.S.Batches.PutProcessor(p.Ctx, p.By, batches.Processor{Name: "side", Owner: "owner"}, 0)
	p.Must(err)
	o := p.Other()
	put := func(s *stores.Store, name string, into chan<- *batches.Batch) {
		a, m := adding(1, false, nil)
		a.NonAtomic.Functions[0].Domain = name
		v, err := s.Batches.Enqueue(p.Ctx, p.By, name,
			batches.NewBatch{Actions: a, Messages: m, Priority: processor.Med,
				Once: db.Once{Key: "k", Hash: []byte("same")}})
		if err != nil {
			t.Error(err)
		}
		into <- v
	}
	held, finish := pgworld.Hold(p.S, 1)
	first, second := make(chan *batches.Batch, 1), make(chan *batches.Batch, 1)
	go put(p.S, "main", first)
	<-held
	go put(o.S, "side", second)
	p.AwaitBlocked(o.PID)
	finish(nil)
	a, b := <-first, <-second
	if a == nil || b == nil || a.ID != b.ID || a.Replay || !b.Replay || b.Processor != "main" {
		t.Errorf("%+v and %+v", a, b)
	}
	if high, med := p.line(processor.High), p.line(processor.Med); high != "[]" || med != "[1]" {
		t.Errorf("High %s, Med %s", high, med)
	}
	pgworld.HoldsTrue(t, p.Ctx, p.S.Pool())
}

// Calls are given while one is being held: the grant waits, and counts it as spent.
func TestAGrantCountsTheCallThatIsBeingHeld(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.authorize("pay", func(a *processor.Authorization) { a.Mode = processor.Mode{Limits: map[string]int64{"ann": 1}} })
	o := p.Other()
	_, m := adding(1, false, nil)
	held, finish := pgworld.Hold(p.S, 1)
	sent, granted := make(chan error, 1), make(chan batches.Grant, 1)
	go func() { _, err := p.S.Batches.Send(p.Ctx, p.as("ann"), "pay", m, 0, db.Once{}); sent <- err }()
	<-held
	go func() {
		g, err := o.S.Batches.PutGrant(p.Ctx, p.By, "pay", "ann", 2)
		if err != nil {
			t.Error(err)
		}
		granted <- g
	}()
	p.AwaitBlocked(o.PID)
	finish(nil)
	p.Must(<-sent)
	if g := <-granted; g != (batches.Grant{Left: 2, Spent: 1}) {
		t.Errorf("%+v", g)
	}
	a, err := p.S.Batches.Authorization(p.Ctx, p.ID, "pay", "ann")
	p.Must(err)
	if a.Mode.Limits["ann"] != 3 || a.Spent != 1 {
		t.Errorf("%+v", a)
	}
	pgworld.HoldsTrue(t, p.Ctx, p.S.Pool())
}

// Retention runs in two processes while a result is being delivered: the batch stays until that has been recorded.
func TestRetentionLeavesABatchThatIsBeingToldOf(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	s := p.Subscribe(results("s"))
	v := p.enqueue(processor.Med, 1, true, nil)
	p.ticks(pgworld.Done(), `executed 1 [{"add":{"i":0}}]`)
	p.Later(50 * time.Hour)
	o := p.Other()
	held, finish := pgworld.Hold(p.S, 1)
	numbered := make(chan error, 1)
	// fanout becomes a delivery, not committed yet
	go func() { _, err := p.S.Deliveries.Deliver(p.Ctx, s.ID, nil, 10); numbered <- err }()
	<-held
	_, err := o.S.Retain(p.Ctx, 48*time.Hour)
	p.Must(err)
	finish(nil)
	p.Must(<-numbered)
	_, err = o.S.Retain(p.Ctx, 48*time.Hour)
	p.Must(err)
	if p.batch(v.ID).Result == nil {
		t.Error("it has no result")
	}
}
