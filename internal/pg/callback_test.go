package pg_test

import (
	"sync"
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
)

// calledBack settles a transaction with a callback as done, and returns it.
func (w *world) calledBack(n pg.Node, queue, uid, url string) outbox.ID {
	w.t.Helper()
	sub := w.sub(queue, "T", uid)
	sub.Callback = &outbox.Callback{URL: url}
	out, err := w.s.Ingest(w.ctx, []*pg.Submission{sub}, false)
	w.must(err)
	w.must(out[0].Err)
	for _, l := range w.claim(n, everything()) {
		w.settle(w.answer(l, done()))
	}
	if s := w.state(out[0].ID); s != outbox.DONE {
		w.t.Fatalf("%s is %s", uid, s)
	}
	return out[0].ID
}

func (w *world) callbackState(id outbox.ID) (state string) {
	w.t.Helper()
	w.must(w.s.Pool().QueryRow(w.ctx, `SELECT state FROM postern.delivery WHERE (queue_id, seq, subscription_id) = ($1, $2, -1)`, id.Queue, id.Seq).Scan(&state))
	return state
}

func TestACallbackWaitsForThatBeforeItInItsQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	n := w.node("n")
	first := w.calledBack(n, "q", "a", "http://one/")
	second := w.calledBack(n, "q", "b", "http://one/")
	other := w.calledBack(n, "q", "c", "http://two/")
	elsewhere := w.calledBack(n, "r", "d", "http://one/")
	for id, want := range map[outbox.ID]string{first: "pending", second: "queued", other: "pending", elsewhere: "pending"} {
		if got := w.callbackState(id); got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
	h, err := w.s.Deliver(w.ctx, pg.CallbackTrack, nil, 10)
	w.must(err)
	if len(h.Due) != 3 || h.Due[0].URL == "" || h.Due[0].Body == nil {
		t.Fatalf("%+v", h)
	}
	var receipts []pg.Receipt
	for _, d := range h.Due {
		receipts = append(receipts, pg.Receipt{Delivery: d, State: "delivered", Try: []byte(`{}`)})
	}
	h, err = w.s.Deliver(w.ctx, pg.CallbackTrack, receipts, 10)
	w.must(err)
	if len(h.Due) != 1 || h.Due[0].ID != second {
		t.Errorf("%+v", h.Due)
	}
}

// A delivery was queued by a SQL transaction that saw the one before it pending, whose end committed without
// seeing it. Two nodes find it at once, behind a third session that holds its row.
func TestWhatIsQueuedBehindNothingIsLetGoOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	n := w.node("n")
	id, behind := w.calledBack(n, "q", "a", "http://one/"), w.calledBack(n, "q", "b", "http://one/")
	_, err := w.s.Pool().Exec(w.ctx, `UPDATE postern.delivery SET state = 'queued', next_at = NULL WHERE queue_id = $1`, id.Queue)
	w.must(err)
	holds, err := w.s.Pool().Begin(w.ctx)
	w.must(err)
	_, err = holds.Exec(w.ctx, `SELECT FROM postern.delivery WHERE (queue_id, seq) = ($1, $2) FOR UPDATE`, id.Queue, id.Seq)
	w.must(err)
	var all sync.WaitGroup
	var mu sync.Mutex
	total := int64(0)
	for range 2 {
		all.Go(func() {
			n, err := w.s.ReleaseCallbacks(w.ctx)
			mu.Lock()
			defer mu.Unlock()
			if total += n; err != nil {
				t.Error(err)
			}
		})
	}
	for waiting := 0; waiting < 2; {
		w.must(w.s.Pool().QueryRow(w.ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting))
	}
	w.must(holds.Commit(w.ctx))
	all.Wait()
	if total != 1 || w.callbackState(id) != "pending" || w.callbackState(behind) != "queued" {
		t.Errorf("%d were let go: %s, %s", total, w.callbackState(id), w.callbackState(behind))
	}
	if n, err := w.s.ReleaseCallbacks(w.ctx); n != 0 || err != nil {
		t.Errorf("%d more, %v", n, err)
	}
}
