package batches_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/batches"
	"github.com/postern-dev/postern/internal/pg/deliveries"
	"github.com/postern-dev/postern/internal/pg/reads"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/processor"
)

// why is what a batch waits for: the kinds of its blockers.
func (p *plant) why(id int64, want string) *reads.Why {
	p.T.Helper()
	w, err := p.S.Batches.WhyBatch(p.Ctx, p.ID, "main", id)
	p.Must(err)
	var kinds []string
	for _, b := range w.Blockers {
		kinds = append(kinds, b.Kind)
		if b.Object == "" || b.Since.IsZero() || b.Detail == "" {
			p.T.Errorf("batch %d: %+v", id, b)
		}
	}
	if got := strings.Join(kinds, " "); got != want || w.Summary == "" || w.Moving != (want == "") && want != "batch_executing no_live_node" {
		p.T.Errorf("batch %d waits for %q, want %q: %+v", id, got, want, w)
	}
	return w
}

// S4.10: why names the blockers of a batch, down to the root.
func TestABatchSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.enqueue(processor.High, 1, false, retries(1, time.Minute))
	p.enqueue(processor.Med, 1, true, nil)
	p.enqueue(processor.Med, 1, true, nil)
	p.why(1, "")
	p.why(2, "high_first")
	p.why(3, "high_first line")
	_, err := p.S.Batches.PauseProcessor(p.Ctx, p.By, "main", true)
	p.Must(err)
	p.why(1, "processor_paused")
	_, err = p.S.Batches.PauseProcessor(p.Ctx, p.By, "main", false)
	p.Must(err)
	p.ticks(refusing("no"), `executed 1 {"add":{"i":0}}`)
	p.why(1, "cooldown")
	w := p.why(2, "starving")
	if b := w.Blockers[0]; b.Object != "/processors/main/batches/1" || b.Next == nil || !b.Next.At.Equal(p.Now.Add(time.Minute)) || len(b.Levers) != 2 {
		t.Errorf("%+v", b)
	}
	p.Later(time.Minute)
	p.ticks(pgworld.Done(), `executed 1 {"add":{"i":0}}`)
	p.why(1, "terminal")
	p.why(2, "")
	_, err = p.S.Batches.Tick(p.Ctx, p.By, "main")
	p.Must(err)
	w, err = p.S.Batches.WhyBatch(p.Ctx, p.ID, "main", 2)
	p.Must(err)
	if len(w.Blockers) < 2 || w.Blockers[0].Kind != "batch_executing" || !strings.HasPrefix(w.Blockers[1].Object, "/") {
		t.Errorf("%+v", w)
	}
	w, err = p.S.Batches.WhyBatch(p.Ctx, p.ID, "main", 3)
	p.Must(err)
	if w.Blockers[0].Object != "/processors/main/batches/2" || w.State != "Queued" {
		t.Errorf("%+v", w)
	}
	p.work(pgworld.Done())
	_, err = p.S.Batches.PutProcessor(p.Ctx, p.By, batches.Processor{Name: "main", Owner: "owner"}, 0)
	p.Must(err)
	p.why(3, "no_tick")
	p.ticks(pgworld.Done(), `executed 3 [{"add":{"i":0}}]`)
	a, m := adding(1, false, nil)
	a.NonAtomic.Functions[0].Callback = &processor.Confirmation{ContractAddress: "bob", CallbackMessage: []byte(`1`)}
	_, err = p.S.Batches.Enqueue(p.Ctx, p.By, "main", batches.NewBatch{Actions: a, Messages: m, Priority: processor.Med})
	p.Must(err)
	p.ticks(pgworld.Done(), `executed 4 {"add":{"execution_id":4,"i":0}}`)
	if w = p.why(4, "callback_pending"); w.Blockers[0].Levers[0].Path != "/processors/main/callbacks/4" || !strings.Contains(w.Blockers[0].Detail, "bob") {
		t.Errorf("%+v", w)
	}
	if _, err = p.S.Batches.WhyBatch(p.Ctx, p.ID, "main", 99); fault.KindOf(err) != fault.NotFound {
		t.Error(err)
	}
}

// results is a webhook that hears of the ends of batches.
func results(name string) outbox.Subscription {
	return outbox.Subscription{Name: name, Kind: "webhook", Events: []outbox.Event{outbox.EventResult}}
}

// A batch is forgotten a while after its end, but not before every subscription was told of it.
func TestBatchesThatEndedAreForgotten(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	_, err := p.S.Batches.PutProcessor(p.Ctx, p.By, batches.Processor{Name: "main", Owner: "owner"}, 0)
	p.Must(err)
	p.enqueue(processor.Med, 1, true, nil)
	p.ticks(pgworld.Done(), `executed 1 [{"add":{"i":0}}]`)
	s := p.Subscribe(results("s"))
	p.enqueue(processor.Med, 1, true, nil)
	p.enqueue(processor.Med, 1, true, nil)
	p.ticks(pgworld.Done(), `executed 2 [{"add":{"i":0}}]`)
	p.Later(50 * time.Hour)
	there := func() (n int) { p.Scan(`SELECT count(*) FROM postern.batch`, &n); return n }
	forget := func(want int) {
		t.Helper()
		_, err := p.S.Retain(p.Ctx, 48*time.Hour)
		p.Must(err)
		if n := there(); n != want {
			t.Errorf("%d batches are left, want %d", n, want)
		}
	}
	forget(2) // 2 waits to be told of, 3 has not ended
	h, err := p.S.Deliveries.Deliver(p.Ctx, s.ID, nil, 10)
	p.Must(err)
	if len(h.Due) != 1 || h.Due[0].Body == nil {
		t.Fatalf("%+v", h)
	}
	forget(2) // it is under way
	_, err = p.S.Deliveries.Deliver(p.Ctx, s.ID, []deliveries.Receipt{{Delivery: h.Due[0], State: "delivered"}}, 0)
	p.Must(err)
	forget(1)
	var steps, actions int
	p.Scan(`SELECT count(*) FROM postern.batch_step WHERE batch_id < 3`, &steps)
	p.Scan(`SELECT count(*) FROM postern.batch_action WHERE batch_id < 3`, &actions)
	if steps+actions != 0 {
		t.Errorf("%d steps and %d actions of forgotten batches", steps, actions)
	}
	p.why(3, "no_tick")
}

// A batch learns of the end of its execution however late it asks, and the execution is not repeated.
func TestAnExecutionOutlivesItsDay(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	v := p.enqueue(processor.Med, 1, false, nil)
	_, err := p.S.Batches.Tick(p.Ctx, p.By, "main")
	p.Must(err)
	p.execute(pgworld.Done())
	p.Ahead(32 * 24 * time.Hour)
	if left := p.Retain(); left != 0 {
		t.Errorf("%d days are left, held by %q", left, p.HeldBy())
	}
	p.Must(p.S.Batches.AdvanceProcessor(p.Ctx, p.ID, "main"))
	p.ended(v, processor.Result{Kind: processor.Executed})
	p.Retain()
	p.Same(p.Lines(`SELECT key FROM postern.idempotency`))
}

// An execution whose transaction retention has dropped is not tried again, since it may have been executed.
func TestAnExecutionWhoseOutcomeWasDroppedEndsUnexpectedly(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	v := p.enqueue(processor.Med, 2, false, retries(5, time.Second))
	p.ticks(pgworld.Done(), `executed 1 {"add":{"i":0}}`)
	_, err := p.S.Batches.Tick(p.Ctx, p.By, "main")
	p.Must(err)
	p.Exec(`DELETE FROM postern.idempotency WHERE key = ':processor:1:2'`)
	p.Exec(`UPDATE postern.retained SET since = (now() AT TIME ZONE 'UTC')::date + 2`)
	p.Must(p.S.Batches.AdvanceProcessor(p.Ctx, p.ID, "main"))
	p.ended(v, processor.Result{Kind: processor.UnexpectedError, N: 1, Reason: "its transaction was dropped by retention before anybody asked how it ended"})
}
