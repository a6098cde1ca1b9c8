package work_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/batches"
	"github.com/postern-dev/postern/internal/pg/deliveries"
	"github.com/postern-dev/postern/internal/processor"
	"github.com/postern-dev/postern/internal/remotetest"
)

// S4.4: two nodes tick several processors at once; each action is called once, in order, and each batch has its result.
func TestProcessorsTickByThemselvesOnAllNodes(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("ADD", func(d *outbox.Dispatcher) { d.Capabilities = []string{"atomic"} })
	h.fake.Script(dispatches, remotetest.Done("ok"))
	const processors, each = 3, 4
	for i := range processors {
		name := fmt.Sprint("p", i)
		_, err := h.s.Batches.PutProcessor(h.ctx, h.by, batches.Processor{Name: name, TickInterval: 10 * time.Millisecond}, 0)
		h.must(err)
		f := processor.Function{Domain: name, ContractAddress: "ADD", MessageDetails: processor.MessageDetails{Message: processor.MessageShape{Name: "add"}}}
		for j := range each {
			a := processor.Actions{NonAtomic: &processor.Subroutine{Functions: []processor.Function{f, f}}}
			if j%2 == 1 {
				a = processor.Actions{Atomic: a.NonAtomic}
			}
			m := processor.Message{Msg: json.RawMessage(`{"add":{}}`)}
			_, err := h.s.Batches.Enqueue(h.ctx, h.by, name, batches.NewBatch{Actions: a, Messages: []processor.Message{m, m}, Priority: processor.Med})
			h.must(err)
		}
	}
	secret := []byte("0123456789abcdef0123456789abcdef")
	r := newReceiver(t, secret)
	r.set(func(n int, _ told) (int, http.Header) { // the first messages do not arrive
		if n < 3 {
			return 503, nil
		}
		return 204, nil
	})
	h.subscribe(outbox.Subscription{Name: "results", Kind: "webhook", URL: r.URL, Events: []outbox.Event{outbox.EventResult}}, secret)
	h.engine("n1", nil)
	h.engine("n2", nil)
	open := func() (n int) {
		h.must(h.s.Pool().QueryRow(h.ctx, `SELECT count(*) FROM postern.batch WHERE state <> 'Done'`).Scan(&n))
		return n
	}
	for until := time.Now().Add(time.Minute); open() > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d batches have not ended", open())
		}
	}
	var executed, runs, calls, again int
	h.must(h.s.Pool().QueryRow(h.ctx, `SELECT (SELECT count(*) FROM postern.batch WHERE result = 'executed'), (SELECT count(*) FROM postern.batch_action WHERE ok),
		(SELECT count(*) FROM postern.outcome), (SELECT count(*) FROM postern.batch_action a JOIN postern.batch_action b USING (batch_id)
			WHERE a.run < b.run AND (a.position > b.position OR a.ended_at > b.started_at))`).Scan(&executed, &runs, &calls, &again))
	if want := processors * each; executed != want || runs != want*3/2 || calls != runs || again != 0 {
		t.Errorf("%d executed, %d runs, %d transactions, %d out of order; want %d, %d, as many, 0", executed, runs, calls, again, want, want*3/2)
	}
	results := map[string]bool{} // S4.7: of each batch, under one id, and signed, which the receiver sees to
	h.until("the results", func() bool {
		for _, m := range r.list() {
			if m.Event != "batch.result" || !strings.Contains(m.Raw, `"kind": "executed"`) && !strings.Contains(m.Raw, `"kind":"executed"`) {
				t.Fatal(m)
			}
			results[m.ID] = true
		}
		return len(results) == processors*each && len(r.list()) > len(results)
	})
	h.until("the receipts", func() bool {
		list, err := h.s.Deliveries.Deliveries(h.ctx, h.by.Context, deliveries.DeliveryFilter{Subscription: []string{"results"}, State: []string{"delivered"}, Limit: 100})
		h.must(err)
		return len(list) == processors*each
	})
}
