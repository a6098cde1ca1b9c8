package pg_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/processor"
)

// why is what a batch waits for: the kinds of its blockers.
func (p *plant) why(id int64, want string) *pg.Why {
	p.t.Helper()
	w, err := p.s.WhyBatch(p.ctx, p.id, "main", id)
	p.must(err)
	var kinds []string
	for _, b := range w.Blockers {
		kinds = append(kinds, b.Kind)
		if b.Object == "" || b.Since.IsZero() || b.Detail == "" {
			p.t.Errorf("batch %d: %+v", id, b)
		}
	}
	if got := strings.Join(kinds, " "); got != want || w.Summary == "" || w.Moving != (want == "") && want != "batch_executing no_live_node" {
		p.t.Errorf("batch %d waits for %q, want %q: %+v", id, got, want, w)
	}
	return w
}

// S4.10: what keeps a batch waiting is named, down to the root.
func TestABatchSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.enqueue(processor.High, 1, false, retries(1, time.Minute))
	p.enqueue(processor.Med, 1, true, nil)
	p.enqueue(processor.Med, 1, true, nil)
	p.why(1, "")
	p.why(2, "high_first")
	p.why(3, "high_first line")
	_, err := p.s.PauseProcessor(p.ctx, p.by, "main", true)
	p.must(err)
	p.why(1, "processor_paused")
	_, err = p.s.PauseProcessor(p.ctx, p.by, "main", false)
	p.must(err)
	p.ticks(refusing("no"), `executed 1 {"add":{"i":0}}`)
	p.why(1, "cooldown")
	w := p.why(2, "starving")
	if b := w.Blockers[0]; b.Object != "/processors/main/batches/1" || b.Next == nil || !b.Next.At.Equal(p.now.Add(time.Minute)) || len(b.Levers) != 2 {
		t.Errorf("%+v", b)
	}
	p.later(time.Minute)
	p.ticks(done(), `executed 1 {"add":{"i":0}}`)
	p.why(1, "terminal")
	p.why(2, "")
	_, err = p.s.Tick(p.ctx, p.by, "main")
	p.must(err)
	w, err = p.s.WhyBatch(p.ctx, p.id, "main", 2)
	p.must(err)
	if len(w.Blockers) < 2 || w.Blockers[0].Kind != "batch_executing" || !strings.HasPrefix(w.Blockers[1].Object, "/") {
		t.Errorf("%+v", w)
	}
	w, err = p.s.WhyBatch(p.ctx, p.id, "main", 3)
	p.must(err)
	if w.Blockers[0].Object != "/processors/main/batches/2" || w.State != "Queued" {
		t.Errorf("%+v", w)
	}
	p.work(done())
	_, err = p.s.PutProcessor(p.ctx, p.by, pg.Processor{Name: "main", Owner: "owner"}, 0)
	p.must(err)
	p.why(3, "no_tick")
	p.ticks(done(), `executed 3 [{"add":{"i":0}}]`)
	a, m := adding(1, false, nil)
	a.NonAtomic.Functions[0].Callback = &processor.Confirmation{ContractAddress: "bob", CallbackMessage: []byte(`1`)}
	_, err = p.s.Enqueue(p.ctx, p.by, "main", pg.NewBatch{Actions: a, Messages: m, Priority: processor.Med})
	p.must(err)
	p.ticks(done(), `executed 4 {"add":{"execution_id":4,"i":0}}`)
	if w = p.why(4, "callback_pending"); w.Blockers[0].Levers[0].Path != "/processors/main/callbacks/4" || !strings.Contains(w.Blockers[0].Detail, "bob") {
		t.Errorf("%+v", w)
	}
	if _, err = p.s.WhyBatch(p.ctx, p.id, "main", 99); fault.KindOf(err) != fault.NotFound {
		t.Error(err)
	}
}

// results is a webhook that hears of the ends of batches.
func results(name string) outbox.Subscription {
	return outbox.Subscription{Name: name, Kind: "webhook", Events: []outbox.Event{outbox.EventResult}}
}

// What ended is forgotten after a while, but not before everybody was told, and not what has not ended.
func TestBatchesThatEndedAreForgotten(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	_, err := p.s.PutProcessor(p.ctx, p.by, pg.Processor{Name: "main", Owner: "owner"}, 0)
	p.must(err)
	p.enqueue(processor.Med, 1, true, nil)
	p.ticks(done(), `executed 1 [{"add":{"i":0}}]`)
	s := p.subscribe(results("s"))
	p.enqueue(processor.Med, 1, true, nil)
	p.enqueue(processor.Med, 1, true, nil)
	p.ticks(done(), `executed 2 [{"add":{"i":0}}]`)
	p.later(50 * time.Hour)
	there := func() (n int) { p.scan(`SELECT count(*) FROM postern.batch`, &n); return n }
	forget := func(want int) {
		t.Helper()
		_, err := p.s.Retain(p.ctx, 48*time.Hour)
		p.must(err)
		if n := there(); n != want {
			t.Errorf("%d batches are left, want %d", n, want)
		}
	}
	forget(2) // 2 waits to be told of, 3 has not ended
	h, err := p.s.Deliver(p.ctx, s.ID, nil, 10)
	p.must(err)
	if len(h.Due) != 1 || h.Due[0].Body == nil {
		t.Fatalf("%+v", h)
	}
	forget(2) // it is under way
	_, err = p.s.Deliver(p.ctx, s.ID, []pg.Receipt{{Delivery: h.Due[0], State: "delivered"}}, 0)
	p.must(err)
	forget(1)
	var steps, actions int
	p.scan(`SELECT count(*) FROM postern.batch_step WHERE batch_id < 3`, &steps)
	p.scan(`SELECT count(*) FROM postern.batch_action WHERE batch_id < 3`, &actions)
	if steps+actions != 0 {
		t.Errorf("%d steps and %d actions of forgotten batches", steps, actions)
	}
	p.why(3, "no_tick")
}

// What a batch has executed is known to it however late it asks, and not executed again.
func TestAnExecutionOutlivesItsDay(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	v := p.enqueue(processor.Med, 1, false, nil)
	_, err := p.s.Tick(p.ctx, p.by, "main")
	p.must(err)
	p.execute(done())
	p.ahead(32 * 24 * time.Hour)
	if left := p.retain(); left != 0 {
		t.Errorf("%d days are left, held by %q", left, p.heldBy())
	}
	p.must(p.s.Advance(p.ctx, p.id, "main"))
	p.ended(v, processor.Result{Kind: processor.Executed})
	p.retain()
	p.same(p.lines(`SELECT key FROM postern.idempotency`))
}

// Nobody executes again what may have been executed on a day that retention has dropped.
func TestAnExecutionWhoseOutcomeWasDroppedEndsUnexpectedly(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	v := p.enqueue(processor.Med, 2, false, retries(5, time.Second))
	p.ticks(done(), `executed 1 {"add":{"i":0}}`)
	_, err := p.s.Tick(p.ctx, p.by, "main")
	p.must(err)
	p.exec(`DELETE FROM postern.idempotency WHERE key = ':processor:1:2'`)
	p.exec(`UPDATE postern.retained SET since = (now() AT TIME ZONE 'UTC')::date + 2`)
	p.must(p.s.Advance(p.ctx, p.id, "main"))
	p.ended(v, processor.Result{Kind: processor.UnexpectedError, N: 1, Reason: "its transaction was dropped by retention before anybody asked how it ended"})
}
