package batches_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/batches"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/deliveries"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/processor"
)

// told is what a subscription was told of the ends of batches, as a consumer fetches it.
func (p *plant) told(name string) (list []string) {
	p.T.Helper()
	sub, err := p.S.Deliveries.Subscription(p.Ctx, p.ID, name)
	p.Must(err)
	_, err = p.S.Deliveries.Deliver(p.Ctx, sub.ID, nil, 10)
	p.Must(err)
	events, _, err := p.S.Deliveries.Feed(p.Ctx, sub.ID, sub.Include, 0, 100)
	p.Must(err)
	for _, e := range events {
		var body struct {
			ID        int64
			Processor string
			State     processor.State
			Result    processor.Result
		}
		p.Must(json.Unmarshal(e.Body, &body))
		if e.Event != outbox.EventResult || body.Processor != "main" || body.State != processor.Done || body.ID != e.ID.Seq {
			p.T.Errorf("event %s: %s", e.Event, e.Body)
		}
		list = append(list, fmt.Sprint(body.ID, " ", body.Result.Kind))
	}
	return list
}

// S4.7: every end of a batch is one event, whatever led to it, in the order of the ends.
func TestEveryEndOfABatchIsToldOnce(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	for name, v := range map[string]outbox.Subscription{"all": {}, "results": {Events: []outbox.Event{outbox.EventResult}},
		"here":      {Events: []outbox.Event{outbox.EventResult}, Filter: outbox.Filter{QueuePrefix: []string{"processor:"}}},
		"elsewhere": {Events: []outbox.Event{outbox.EventResult}, Filter: outbox.Filter{Queue: []string{"processor:other"}}},
		"core":      {Events: outbox.TransactionEvents}} {
		v.Name, v.Kind = name, "pull"
		p.Subscribe(v)
	}
	p.Later(time.Minute)
	a, m := adding(1, true, nil)
	over := p.Now.Add(-time.Second)
	_, err := p.S.Batches.Enqueue(p.Ctx, p.By, "main", batches.NewBatch{Actions: a, Messages: m, Expiration: &over}) // 1: Expired at once
	p.Must(err)
	p.enqueue(processor.Med, 1, true, nil)
	p.enqueue(processor.Med, 2, false, nil)
	p.enqueue(processor.Med, 2, false, nil)
	p.ticks(pgworld.Done(), `executed 2 [{"add":{"i":0}}]`, `executed 3 {"add":{"i":0}}`)
	_, err = p.S.Batches.Evict(p.Ctx, p.By, "main", batches.Eviction{ID: 4})
	p.Must(err)
	p.Later(time.Second)
	p.ticks(refusing("no"), `executed 3 {"add":{"i":1}}`)
	p.Must(p.S.Batches.AdvanceProcessor(p.Ctx, p.ID, "main")) // a second pass tells of no end again
	for _, name := range []string{"results", "here"} {
		p.Same(p.told(name), "1 expired", "2 executed", "4 removed_by_owner", "3 partially_executed")
	}
	p.Same(p.told("elsewhere"))
	var fetched int // and where a consumer fetches it by SQL, a batch is no transaction
	p.Scan(`SELECT count(*) FROM postern.feed('results', 10) WHERE event = 'batch.result' AND transaction_id IS NULL AND uid IS NULL AND body ? 'result'`, &fetched)
	if fetched != 4 {
		t.Errorf("postern.feed fetches %d", fetched)
	}
	for name, want := range map[string]int{"all": 10, "core": 6} { // three transactions, accepted and ended, and four ends
		sub, err := p.S.Deliveries.Subscription(p.Ctx, p.ID, name)
		p.Must(err)
		_, err = p.S.Deliveries.Deliver(p.Ctx, sub.ID, nil, 10)
		p.Must(err)
		list, _, err := p.S.Deliveries.Feed(p.Ctx, sub.ID, nil, 0, 100)
		p.Must(err)
		if len(list) != want {
			t.Errorf("%s hears of %d events, want %d", name, len(list), want)
		}
	}
}

// S4.14: each time that a batch was not delivered is told under a number of its own, as it was then, whatever has come
// of the batch since; and retention leaves the batch until everybody was told.
func TestEachTimeoutIsToldAsItWas(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	_, err := p.S.Batches.PutProcessor(p.Ctx, p.By, batches.Processor{Name: "main", Owner: "owner", DeliverWithin: time.Second}, 0)
	p.Must(err)
	p.authorize("pay", nil)
	pull := p.Subscribe(outbox.Subscription{Name: "pull", Kind: "pull", Events: []outbox.Event{outbox.EventTimeout}})
	hook := p.Subscribe(outbox.Subscription{Name: "hook", Kind: "webhook", Events: []outbox.Event{outbox.EventTimeout}})
	_, m := adding(1, false, nil)
	v, err := p.S.Batches.Send(p.Ctx, p.as("ann"), "pay", m, time.Hour, db.Once{})
	p.Must(err)
	for range 2 {
		_, err = p.S.Batches.Tick(p.Ctx, p.By, "main")
		p.Must(err)
		p.Later(time.Second)
		p.Must(p.S.Batches.AdvanceProcessor(p.Ctx, p.ID, "main"))
		_, err = p.S.Batches.Resend(p.Ctx, p.as("eve"), "pay", v.ID)
		p.Must(err)
	}
	p.ticks(pgworld.Done(), `executed 1 {"add":{"i":0}}`)
	p.ended(v, processor.Result{Kind: processor.Executed})

	_, err = p.S.Deliveries.Deliver(p.Ctx, pull.ID, nil, 0)
	p.Must(err)
	events, _, err := p.S.Deliveries.Feed(p.Ctx, pull.ID, nil, 0, 100)
	p.Must(err)
	ids := map[string]bool{}
	for i, e := range events {
		var body struct {
			ID, Runs int64
			State    processor.State
			Event    string
			Result   processor.Result
		}
		p.Must(json.Unmarshal(e.Body, &body))
		ids[e.ID.EventID(e.At, e.Event)] = true
		if body.ID != v.ID || body.Runs != int64(i+1) || body.State != processor.TimedOut || body.Event != "batch.timeout" || body.Result != (processor.Result{Kind: processor.Timeout, Retriable: true}) {
			t.Errorf("event %d: %s", i, e.Body)
		}
	}
	if len(events) != 2 || len(ids) != 2 {
		t.Errorf("%d timeouts are told under %v", len(events), ids)
	}
	list, err := p.S.Deliveries.Deliveries(p.Ctx, p.ID, deliveries.DeliveryFilter{Subscription: []string{"pull"}, Limit: 10})
	p.Must(err)
	for _, d := range list {
		if d.Batch != v.ID {
			t.Errorf("delivery %s tells of batch %d", d, d.Batch)
		}
	}

	p.Later(50 * time.Hour)
	var receipts []deliveries.Receipt
	for range 2 { // both wait, the second behind the first
		h, err := p.S.Deliveries.Deliver(p.Ctx, hook.ID, receipts, 10)
		p.Must(err)
		if len(h.Due) != 1 || h.Due[0].Body == nil {
			t.Fatalf("%+v", h)
		}
		_, err = p.S.Retain(p.Ctx, 48*time.Hour)
		p.Must(err)
		p.batch(v.ID)
		receipts = []deliveries.Receipt{{Delivery: h.Due[0], State: "delivered"}}
	}
	_, err = p.S.Deliveries.Deliver(p.Ctx, hook.ID, receipts, 0)
	p.Must(err)
	_, err = p.S.Retain(p.Ctx, 48*time.Hour)
	p.Must(err)
	var left int
	if p.Scan(`SELECT count(*) FROM postern.batch`, &left); left != 0 {
		t.Errorf("%d batches are left", left)
	}
}
