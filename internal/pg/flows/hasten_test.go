package flows_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/sequencer"
)

// A transaction whose try has ended is asked about once: while a node has the poll in hand, neither the look for ended
// tries nor another node begins a second one. Where the poll read the try before it ended, the next look has it asked
// again; where its node dies, its lease ends.
func TestOneNodeAsksAboutATryThatHasEnded(t *testing.T) {
	t.Parallel()
	for _, stale := range []bool{false, true} {
		w := newWorld(t)
		second := w.Node("m")
		w.register("a")
		w.post(0)
		v := w.one("a")
		poll := func(n pg.Node) []*pg.Lease {
			woken, err := w.S.Wake(w.Ctx, n, 10, 10)
			w.Must(err)
			return woken.Polls
		}
		if len(poll(w.node)) != 0 {
			t.Fatal("a try that runs is asked about")
		}
		if stale { // the clock is due a day later; the poll reads that it runs, and it ends behind that
			w.Later(25 * time.Hour)
			w.Beats(w.node, pg.NodeLoad{})
			w.Beats(second, pg.NodeLoad{})
		} else {
			_, err := w.S.Flows.End(w.Ctx, w.ID, v.ID, v.Fence, finished("1"))
			w.Must(err)
		}
		first := poll(w.node)
		if len(first) != 1 {
			t.Fatalf("stale %v: %d polls, want 1", stale, len(first))
		}
		status := w.S.Flows.StatusBatch(w.Ctx, first[0].Hashes())[0]
		if stale {
			_, err := w.S.Flows.End(w.Ctx, w.ID, v.ID, v.Fence, finished("1"))
			w.Must(err)
		}
		for range 3 {
			if n, _, err := w.S.Flows.Unsettled(w.Ctx); n != 1 || err != nil {
				t.Fatalf("%d unsettled, %v", n, err)
			}
			if again := poll(second); len(again) != 0 {
				t.Errorf("stale %v: a second node asks about what the first has in hand", stale)
			}
		}
		if stale {
			if status.State != outbox.StatusPending {
				t.Fatalf("%+v", status)
			}
			w.Must(w.S.Polled(w.Ctx, []int64{first[0].ID().Queue}, []time.Duration{24 * time.Hour}, []string{""}))
			if n, _, err := w.S.Flows.Unsettled(w.Ctx); n != 1 || err != nil {
				t.Fatalf("%d unsettled, %v", n, err)
			}
			if first = poll(second); len(first) != 1 {
				t.Fatalf("%d polls behind one that read an older state, want 1", len(first))
			}
			status = w.S.Flows.StatusBatch(w.Ctx, first[0].Hashes())[0]
		}
		l := first[0]
		a := &pg.Answer{Lease: l, StartedAt: w.Now, Step: sequencer.Polled(l.Flight(0), status,
			l.Dispatcher.Dispatcher, 0.5)}
		a.Result.Hash, a.Result.Done = status.Hash, status.Done
		w.Settle(a)
		if n, _, err := w.S.Flows.Unsettled(w.Ctx); n != 0 || err != nil {
			t.Errorf("stale %v: %d unsettled, %v", stale, n, err)
		}
	}
}
