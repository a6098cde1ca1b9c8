package deliveries_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/deliveries"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

func (w *world) callbackState(id outbox.ID) (state string) {
	w.T.Helper()
	w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT state FROM postern.delivery WHERE (queue_id, seq, subscription_id) = ($1, $2, -1)`, id.Queue, id.Seq).Scan(&state))
	return state
}

func TestACallbackWaitsForThatBeforeItInItsQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	n := w.Node("n")
	first := w.CalledBack(n, "q", "a", "http://one/")
	second := w.CalledBack(n, "q", "b", "http://one/")
	other := w.CalledBack(n, "q", "c", "http://two/")
	elsewhere := w.CalledBack(n, "r", "d", "http://one/")
	for id, want := range map[outbox.ID]string{first: "pending", second: "queued", other: "pending", elsewhere: "pending"} {
		if got := w.callbackState(id); got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
	h, err := w.S.Deliveries.Deliver(w.Ctx, deliveries.CallbackTrack, nil, 10)
	w.Must(err)
	if len(h.Due) != 3 || h.Due[0].URL == "" || h.Due[0].Body == nil {
		t.Fatalf("%+v", h)
	}
	var receipts []deliveries.Receipt
	for _, d := range h.Due {
		receipts = append(receipts, deliveries.Receipt{Delivery: d, State: "delivered", Try: []byte(`{}`)})
	}
	h, err = w.S.Deliveries.Deliver(w.Ctx, deliveries.CallbackTrack, receipts, 10)
	w.Must(err)
	if len(h.Due) != 1 || h.Due[0].ID != second {
		t.Errorf("%+v", h.Due)
	}
}

// A delivery was queued by a SQL transaction that saw the one before it pending, whose end committed without
// seeing it. Two nodes find it at once, behind a third session that holds its row.
func TestWhatIsQueuedBehindNothingIsLetGoOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	n := w.Node("n")
	id, behind := w.CalledBack(n, "q", "a", "http://one/"), w.CalledBack(n, "q", "b", "http://one/")
	_, err := w.S.Pool().Exec(w.Ctx, `UPDATE postern.delivery SET state = 'queued', next_at = NULL WHERE queue_id = $1`, id.Queue)
	w.Must(err)
	holds := w.Begin(w.S.Pool())
	_, err = holds.Exec(w.Ctx, `SELECT FROM postern.delivery WHERE (queue_id, seq) = ($1, $2) FOR UPDATE`, id.Queue, id.Seq)
	w.Must(err)
	var all sync.WaitGroup
	var mu sync.Mutex
	total := int64(0)
	for range 2 {
		all.Go(func() {
			n, err := w.S.Deliveries.ReleaseCallbacks(w.Ctx)
			mu.Lock()
			defer mu.Unlock()
			if total += n; err != nil {
				t.Error(err)
			}
		})
	}
	for waiting := 0; waiting < 2; {
		w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting))
	}
	w.Must(holds.Commit(w.Ctx))
	all.Wait()
	if total != 1 || w.callbackState(id) != "pending" || w.callbackState(behind) != "queued" {
		t.Errorf("%d were let go: %s, %s", total, w.callbackState(id), w.callbackState(behind))
	}
	if n, err := w.S.Deliveries.ReleaseCallbacks(w.Ctx); n != 0 || err != nil {
		t.Errorf("%d more, %v", n, err)
	}
}

// told delivers what is due of the callbacks, and then what that lets go, and returns it in that order.
func (w *world) told() (order []outbox.ID) {
	w.T.Helper()
	var done []deliveries.Receipt
	for {
		h, err := w.S.Deliveries.Deliver(w.Ctx, deliveries.CallbackTrack, done, 10)
		w.Must(err)
		if len(h.Due) == 0 {
			return order
		}
		done = nil
		for _, d := range h.Due {
			order = append(order, d.ID)
			done = append(done, deliveries.Receipt{Delivery: d, State: "delivered", Try: []byte(`{}`)})
		}
	}
}

// The clock is set back between the ends of a queue, whose first callback waits for its endpoint. A callback of a
// process of before has no place, and goes by its time.
func TestCallbacksKeepTheOrderOfTheirEndsWhenTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	n := w.Node("n")
	want := []outbox.ID{w.CalledBack(n, "q", "a", "http://one/")}
	for i, uid := range []string{"b", "c", "d", "e"} {
		if i == 1 {
			w.Exec(`UPDATE postern.delivery SET cursor = NULL`)
		}
		want = append(want, w.CalledBack(n, "q", uid, "http://one/"))
		w.Later(time.Second)
		if i > 0 {
			w.At(w.Now.Add(-time.Minute))
		}
	}
	w.Later(10 * time.Minute)
	list, err := w.S.Deliveries.Deliveries(w.Ctx, w.ID, deliveries.DeliveryFilter{Limit: 10})
	w.Must(err)
	for _, d := range list {
		if d.Position != 0 { // a place is no cursor of a client
			t.Errorf("%s is shown at %d", d.DeliveryID, d.Position)
		}
	}
	if got := w.told(); !slices.Equal(got, want) {
		t.Errorf("told %v, want %v", got, want)
	}
}

// Two sessions end transactions of one queue, with the clock set back between them: the second waits for the queue, and
// sees what the first has queued.
func TestTwoEndsOfAQueueAreToldInTheOrderOfTheirCommits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	s := w.Subscribe(outbox.Subscription{Name: "s", Kind: "pull", Events: outbox.TransactionEvents})
	w.Must(w.S.Refresh(w.Ctx))
	since := w.Now
	w.Later(time.Hour)
	n := w.Node("n")
	want := []outbox.ID{w.CalledBack(n, "q", "a", "http://one/")}
	for _, uid := range []string{"b", "c", "d"} { // c goes out behind b
		sub := w.Sub("q", "T", uid)
		sub.Callback = &outbox.Callback{URL: "http://one/"}
		out, err := w.S.Ingest(w.Ctx, []*pg.Submission{sub}, false)
		w.Must(err)
		want = append(want, out[0].ID)
	}
	lease := w.Claim(n, pgworld.Everything())[0]
	other := w.Other()
	held, finish := pgworld.Hold(w.S, 1)
	ended := make(chan error, 2)
	go func() { _, err := w.S.Settle(w.Ctx, []*pg.Answer{w.Answer(lease, pgworld.Done())}); ended <- err }()
	<-held
	other.S.SetNow(&since)
	go func() { _, err := other.S.Cancel(w.Ctx, w.By, want[3]); ended <- err }()
	w.AwaitBlocked(other.PID)
	finish(nil)
	w.Must(<-ended)
	w.Must(<-ended)
	want = slices.Delete(want, 2, 3)
	if got := w.told(); !slices.Equal(got, want) {
		t.Errorf("told %v, want %v", got, want)
	}
	w.Number(w.S, s.ID)
	w.Same(w.Feed(s.ID, 0), "q/a accepted", "q/a done", "q/b accepted", "q/c accepted", "q/d accepted", "q/b done",
		"q/d cancelled")
}
