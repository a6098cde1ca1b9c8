package deliveries_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/deliveries"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

func TestWhoSubscribedHearsOfItInOrderAndNobodyElseDoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.Dispatcher("U", nil)
	w.Post("q", "T", "before")
	w.Must(w.S.Refresh(w.Ctx))
	all := w.Subscribe(outbox.Subscription{Name: "all", Kind: "pull"})
	ends := w.Subscribe(outbox.Subscription{Name: "ends", Kind: "pull", Events: []outbox.Event{outbox.EventDone, outbox.EventCancelled},
		Filter: outbox.Filter{QueuePrefix: []string{"q", "z"}, Type: []string{"T"}}})
	ids := w.Post("q", "T", "a", "b", "c")
	w.Post("other", "T", "x")
	w.Post("q", "U", "u")
	w.Later(time.Second)
	_, err := w.S.Cancel(w.Ctx, w.By, ids[1])
	w.Must(err)
	w.Later(time.Second)
	n := w.Node("n")
	for range 2 { // before, a
		for _, l := range w.Claim(n, pgworld.Everything()) {
			if l.Queue == "q" {
				for at := l; at != nil && at.Task.UID != "c"; {
					w.Later(time.Second)
					at = w.Settle(w.Answer(at, pgworld.Done()))[0].Next
				}
			}
		}
	}
	w.Number(w.S, all.ID)
	w.Number(w.S, ends.ID)
	w.Same(w.Feed(all.ID, 0), "q/a accepted", "q/b accepted", "q/c accepted", "other/x accepted", "q/u accepted", "q/b cancelled", "q/before done", "q/a done")
	w.Same(w.Feed(all.ID, 6), "q/before done", "q/a done")
	w.Same(w.Feed(ends.ID, 0), "q/b cancelled", "q/before done", "q/a done")
	var left int
	w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT count(*) FROM postern.fanout`).Scan(&left))
	if left != 0 {
		t.Errorf("%d events were left behind", left)
	}
	if _, _, err := w.S.Deliveries.Feed(w.Ctx, all.ID, nil, 1<<60, 10); err == nil || !strings.Contains(err.Error(), "ahead") {
		t.Errorf("a cursor from the future: %v", err)
	}
}

// The clock is set back between the events of a queue, before any of them has its position.
func TestAQueueIsToldInOrderWhenTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	s := w.Subscribe(outbox.Subscription{Name: "s", Kind: "pull"})
	w.Must(w.S.Refresh(w.Ctx))
	since := w.Now
	w.At(since.Add(time.Hour))
	ids := w.Post("q", "T", "a", "b", "c")
	w.At(since.Add(time.Minute))
	_, err := w.S.Cancel(w.Ctx, w.By, ids[1])
	w.Must(err)
	w.At(since)
	for at := w.Claim(w.Node("n"), pgworld.Everything())[0]; at != nil; {
		at = w.Settle(w.Answer(at, pgworld.Done()))[0].Next
	}
	w.Number(w.S, s.ID)
	w.Same(w.Feed(s.ID, 0), "q/a accepted", "q/b accepted", "q/c accepted", "q/b cancelled", "q/a done", "q/c done")
}

// A process whose list of subscriptions is from before a subscription goes by a new one as soon as it
// matters: when its own reading of the clock has reached since.
func TestAProcessThatHasNotHeardOfItTellsAllTheSame(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	old := w.Other()
	w.Must(old.S.Refresh(w.Ctx)) // and never again
	v := outbox.Subscription{Name: "s", Kind: "pull", OnError: "skip"}
	_, err := w.S.Deliveries.PutSubscription(w.Ctx, w.By, v, nil, 0)
	w.Must(err)
	s, err := w.S.Deliveries.Subscription(w.Ctx, w.ID, "s")
	w.Must(err)
	post := func(uid string) {
		t.Helper()
		out, err := old.S.Ingest(w.Ctx, []*pg.Submission{w.Sub("q", "T", uid)}, false)
		w.Must(err)
		w.Must(out[0].Err)
	}
	w.At(s.Since.Add(-time.Microsecond))
	post("may be missing")
	w.At(*s.Since)
	post("told")
	w.Number(w.S, s.ID)
	if got := w.Feed(s.ID, 0); len(got) == 0 || got[len(got)-1] != "q/told accepted" {
		t.Errorf("from since on an event is missing: %v", got)
	}
	// A creation that was cut off after its first commit has no since: the first numbering gives one.
	_, err = w.S.Pool().Exec(w.Ctx, `UPDATE postern.subscription SET since = NULL`)
	w.Must(err)
	w.Number(w.S, s.ID)
	if s, err = w.S.Deliveries.Subscription(w.Ctx, w.ID, "s"); err != nil || s.Since == nil || !s.Since.After(w.Now) {
		t.Errorf("%+v %v", s, err)
	}
}

// Numbering and a settle in both orders of their commits.
func TestWhatCommitsLateIsNeverBehindAPositionThatWasRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	s := w.Subscribe(outbox.Subscription{Name: "s", Kind: "pull"})
	w.Must(w.S.Refresh(w.Ctx))
	b := w.Other()
	w.Post("q", "T", "a")
	w.Post("r", "T", "b")
	w.Number(w.S, s.ID)
	leases := w.Claim(w.Node("n"), pgworld.Everything())
	slices.SortFunc(leases, func(x, y *pg.Lease) int { return strings.Compare(x.Queue, y.Queue) })

	// the settle of q has written its row of fanout, with the earlier time, and has not committed
	held, finish := pgworld.Hold(w.S, 1)
	ended := make(chan error, 1)
	go func() { _, err := w.S.Settle(w.Ctx, []*pg.Answer{w.Answer(leases[0], pgworld.Done())}); ended <- err }()
	<-held
	w.Later(time.Second)
	b.S.SetNow(&w.Now)
	_, err := b.S.Settle(w.Ctx, []*pg.Answer{w.Answer(leases[1], pgworld.Done())})
	w.Must(err)
	w.Number(b.S, s.ID)
	w.Same(w.Feed(s.ID, 2), "r/b done")
	finish(nil)
	w.Must(<-ended)
	w.Same(w.Feed(s.ID, 3)) // committed, and not numbered
	w.Number(b.S, s.ID)
	w.Same(w.Feed(s.ID, 3), "q/a done")

	// the numbering is open, and a settle commits meanwhile; a second numbering does not wait
	w.Post("q", "T", "c")
	held, finish = pgworld.Hold(w.S, 1)
	go func() { _, err := w.S.Deliveries.Deliver(w.Ctx, s.ID, nil, 0); ended <- err }()
	<-held
	l := func() *pg.Lease {
		n, err := b.S.Register(w.Ctx, "n2", "test", time.Minute)
		w.Must(err)
		l, _, err := b.S.Claim(w.Ctx, n, pgworld.Everything())
		w.Must(err)
		return l[0]
	}()
	w.Later(time.Second)
	b.S.SetNow(&w.Now)
	_, err = b.S.Settle(w.Ctx, []*pg.Answer{w.Answer(l, pgworld.Done())})
	w.Must(err)
	w.Number(b.S, s.ID)
	w.Same(w.Feed(s.ID, 4))
	finish(nil)
	w.Must(<-ended)
	w.Same(w.Feed(s.ID, 4), "q/c accepted")
	w.Number(b.S, s.ID)
	w.Same(w.Feed(s.ID, 4), "q/c accepted", "q/c done")

	// a numbering that dies leaves everything to the next one
	w.Post("q", "T", "d")
	held, finish = pgworld.Hold(w.S, 1)
	go func() { _, err := w.S.Deliveries.Deliver(w.Ctx, s.ID, nil, 0); ended <- err }()
	<-held
	finish(pgworld.ErrRolledBack)
	if err := <-ended; !errors.Is(err, pgworld.ErrRolledBack) {
		t.Fatal(err)
	}
	w.Number(b.S, s.ID)
	w.Same(w.Feed(s.ID, 6), "q/d accepted")
}

func (w *world) take(s *stores.Store, line int32, room int, done ...deliveries.Receipt) []string {
	w.T.Helper()
	h, err := s.Deliveries.Deliver(w.Ctx, line, done, room)
	w.Must(err)
	w.Due = h.Due
	said := []string{}
	for _, d := range h.Due {
		tx, err := w.S.Transaction(w.Ctx, w.ID, d.ID)
		w.Must(err)
		said = append(said, fmt.Sprintf("%s/%s %s %d", tx.Queue, tx.UID, d.Event, d.Attempts))
	}
	slices.Sort(said)
	return said
}

// receipt is what came of the delivery that take handed out i-th.
func (w *world) receipt(i int, state string, again time.Duration) deliveries.Receipt {
	return deliveries.Receipt{Delivery: w.Due[i], State: state, Again: again, Try: []byte(`{"status":1}`), Message: "because"}
}

func TestAWebhookIsInOrderPerQueueWhateverFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	s := w.Subscribe(outbox.Subscription{Name: "s", Kind: "webhook"})
	b := w.Other().S
	w.Post("q", "T", "a", "b", "c")
	w.Post("r", "T", "x", "y")
	w.Same(w.take(w.S, s.ID, 10), "q/a accepted 1", "r/x accepted 1")
	slices.SortFunc(w.Due, func(x, y *deliveries.Delivery) int { return int(x.ID.Queue - y.ID.Queue) })
	first := w.Due
	w.Same(w.take(b, s.ID, 10)) // another node gets nothing of what is out
	w.Due = first
	// a fails: q waits, r goes on; while something fails, one at a time goes out
	w.Same(w.take(w.S, s.ID, 10, w.receipt(0, "pending", time.Minute)))
	w.Due = first
	w.Same(w.take(w.S, s.ID, 10, w.receipt(1, "delivered", 0)), "r/y accepted 1")
	w.Same(w.take(w.S, s.ID, 10, w.receipt(0, "delivered", 0)))
	w.Later(time.Minute)
	w.Same(w.take(b, s.ID, 10), "q/a accepted 2")
	stale := w.Due[0]
	w.Later(time.Minute) // its process dies: the lease is over, somebody else has it
	w.Same(w.take(w.S, s.ID, 10), "q/a accepted 3")
	current := w.Due[0]
	w.Due = []*deliveries.Delivery{stale}
	w.Same(w.take(b, s.ID, 10, w.receipt(0, "delivered", 0))) // too late: it counts for nothing
	w.Due = []*deliveries.Delivery{current}
	w.Same(w.take(w.S, s.ID, 10, w.receipt(0, "failed", 0)), "q/b accepted 1")
	w.Same(w.take(w.S, s.ID, 10, w.receipt(0, "delivered", 0)), "q/c accepted 1")
	w.Same(w.take(w.S, s.ID, 10, w.receipt(0, "delivered", 0)))
	list, err := w.S.Deliveries.Deliveries(w.Ctx, w.ID, deliveries.DeliveryFilter{State: []string{"failed"}, Limit: 10})
	w.Must(err)
	if len(list) != 1 || list[0].Attempts != 3 || list[0].Error != "because" || string(list[0].Tries) != `[{"status": 1}, {"status": 1}]` {
		t.Fatalf("%+v", list)
	}
	w.Same(w.Lines(`SELECT concat_ws(' ', subscription, pending, failed, delivered_24h) FROM report.deliveries`), "s 0 1 4") // the late one is not counted
	// the failed delivery is sent again, and then all of them in their order
	n, err := w.S.Deliveries.Redeliver(w.Ctx, w.By, "s", time.Time{}, w.Now.Add(time.Hour), false)
	w.Must(err)
	w.Same(w.take(w.S, s.ID, 10), "q/a accepted 4")
	w.Same(w.take(w.S, s.ID, 10, w.receipt(0, "delivered", 0)))
	all, err := w.S.Deliveries.Redeliver(w.Ctx, w.By, "s", time.Time{}, w.Now.Add(time.Hour), true)
	w.Must(err)
	w.Same(w.take(w.S, s.ID, 10), "q/a accepted 5", "r/x accepted 2")
	if n != 1 || all != 5 {
		t.Errorf("redelivered %d and %d", n, all)
	}
}

func TestAWebhookThatFailsForFiveDaysIsDisabledAndKeepsItsRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	s := w.Subscribe(outbox.Subscription{Name: "s", Kind: "webhook", OnError: "block"})
	w.Post("q", "T", "a")
	w.Same(w.take(w.S, s.ID, 10), "q/a accepted 1")
	w.take(w.S, s.ID, 0, w.receipt(0, "pending", time.Hour))
	w.Later(5*24*time.Hour + time.Second)
	_, err := w.S.EnsureDays(w.Ctx)
	w.Must(err)
	w.Same(w.take(w.S, s.ID, 10), "q/a accepted 2")
	w.Post("q", "T", "b")
	w.Same(w.take(w.S, s.ID, 10, w.receipt(0, "pending", time.Hour)))
	v, err := w.S.Deliveries.Subscription(w.Ctx, w.ID, "s")
	w.Must(err)
	if v.Enabled || v.DisabledReason != "nothing could be delivered for 5 days" || v.Pending != 2 || v.FailingSince == nil {
		t.Errorf("%+v", v)
	}
	w.Later(2 * time.Hour)
	w.Same(w.take(w.S, s.ID, 10))
	_, err = w.S.Deliveries.EnableSubscription(w.Ctx, w.By, "s", true)
	w.Must(err)
	w.Same(w.take(w.S, s.ID, 10), "q/a accepted 3")
	w.Same(w.take(w.S, s.ID, 10, w.receipt(0, "delivered", 0)), "q/b accepted 1")
	w.Must(w.S.Deliveries.RemoveSubscription(w.Ctx, w.By, "s"))
	w.Same(w.take(w.S, s.ID, 10, w.receipt(0, "delivered", 0)))
}

func TestDeliveriesAreFoundByTheirKeys(t *testing.T) {
	t.Parallel()
	newWorld(t).ByKeys(deliveries.DeliveriesByKey)
}
