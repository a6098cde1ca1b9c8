package pg_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
)

// subscribe makes a subscription and lets its since pass.
func (w *world) subscribe(v outbox.Subscription) *pg.Subscription {
	w.t.Helper()
	if v.OnError == "" {
		v.OnError = "skip"
	}
	var secret []byte
	if v.Kind == "webhook" {
		v.URL, secret = "http://127.0.0.1:1/", []byte("secret")
	}
	_, err := w.s.PutSubscription(w.ctx, w.by, v, secret, 0)
	w.must(err)
	s, err := w.s.Subscription(w.ctx, w.id, v.Name)
	w.must(err)
	w.at(*s.Since)
	return s
}

// number runs passes until nothing is left to number.
func (w *world) number(s *stores.Store, line int32) {
	w.t.Helper()
	for more := true; more; {
		h, err := s.Deliver(w.ctx, line, nil, 0)
		w.must(err)
		more = h.More
	}
}

// feed is what a subscription has after so many events, as "queue/uid event".
func (w *world) feed(line int32, after int) []string {
	w.t.Helper()
	list, _, err := w.s.Feed(w.ctx, line, nil, 0, 1000)
	w.must(err)
	if after > 0 {
		list, _, err = w.s.Feed(w.ctx, line, nil, list[after-1].Position, 1000)
		w.must(err)
	}
	said := []string{}
	for _, e := range list {
		tx, err := w.s.Transaction(w.ctx, w.id, e.ID)
		w.must(err)
		said = append(said, fmt.Sprintf("%s/%s %s", e.Queue, tx.UID, e.Event))
	}
	return said
}

func (w *world) same(got []string, want ...string) {
	w.t.Helper()
	if !slices.Equal(got, want) {
		w.t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), strings.Join(want, ", "))
	}
}

func TestWhoSubscribedHearsOfItInOrderAndNobodyElseDoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	w.dispatcher("U", nil)
	w.post("q", "T", "before")
	w.must(w.s.Refresh(w.ctx))
	all := w.subscribe(outbox.Subscription{Name: "all", Kind: "pull"})
	ends := w.subscribe(outbox.Subscription{Name: "ends", Kind: "pull", Events: []outbox.Event{outbox.EventDone, outbox.EventCancelled},
		Filter: outbox.Filter{QueuePrefix: []string{"q", "z"}, Type: []string{"T"}}})
	ids := w.post("q", "T", "a", "b", "c")
	w.post("other", "T", "x")
	w.post("q", "U", "u")
	w.later(time.Second)
	_, err := w.s.Cancel(w.ctx, w.by, ids[1])
	w.must(err)
	w.later(time.Second)
	n := w.node("n")
	for range 2 { // before, a
		for _, l := range w.claim(n, everything()) {
			if l.Queue == "q" {
				for at := l; at != nil && at.Task.UID != "c"; {
					w.later(time.Second)
					at = w.settle(w.answer(at, done()))[0].Next
				}
			}
		}
	}
	w.number(w.s, all.ID)
	w.number(w.s, ends.ID)
	w.same(w.feed(all.ID, 0), "q/a accepted", "q/b accepted", "q/c accepted", "q/u accepted", "other/x accepted", "q/b cancelled", "q/before done", "q/a done")
	w.same(w.feed(all.ID, 6), "q/before done", "q/a done")
	w.same(w.feed(ends.ID, 0), "q/b cancelled", "q/before done", "q/a done")
	var left int
	w.must(w.s.Pool().QueryRow(w.ctx, `SELECT count(*) FROM postern.fanout`).Scan(&left))
	if left != 0 {
		t.Errorf("%d events were left behind", left)
	}
	if _, _, err := w.s.Feed(w.ctx, all.ID, nil, 1<<60, 10); err == nil || !strings.Contains(err.Error(), "ahead") {
		t.Errorf("a cursor from the future: %v", err)
	}
}

// A process whose list of subscriptions is from before a subscription goes by a new one as soon as it
// matters: when its own reading of the clock has reached since.
func TestAProcessThatHasNotHeardOfItTellsAllTheSame(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	old := w.other()
	w.must(old.s.Refresh(w.ctx)) // and never again
	v := outbox.Subscription{Name: "s", Kind: "pull", OnError: "skip"}
	_, err := w.s.PutSubscription(w.ctx, w.by, v, nil, 0)
	w.must(err)
	s, err := w.s.Subscription(w.ctx, w.id, "s")
	w.must(err)
	post := func(uid string) {
		t.Helper()
		out, err := old.s.Ingest(w.ctx, []*pg.Submission{w.sub("q", "T", uid)}, false)
		w.must(err)
		w.must(out[0].Err)
	}
	w.at(s.Since.Add(-time.Microsecond))
	post("may be missing")
	w.at(*s.Since)
	post("told")
	w.number(w.s, s.ID)
	if got := w.feed(s.ID, 0); len(got) == 0 || got[len(got)-1] != "q/told accepted" {
		t.Errorf("from since on an event is missing: %v", got)
	}
	// A creation that was cut off after its first commit has no since: the first numbering gives one.
	_, err = w.s.Pool().Exec(w.ctx, `UPDATE postern.subscription SET since = NULL`)
	w.must(err)
	w.number(w.s, s.ID)
	if s, err = w.s.Subscription(w.ctx, w.id, "s"); err != nil || s.Since == nil || !s.Since.After(w.now) {
		t.Errorf("%+v %v", s, err)
	}
}

// Numbering and a settle in both orders of their commits.
func TestWhatCommitsLateIsNeverBehindAPositionThatWasRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	s := w.subscribe(outbox.Subscription{Name: "s", Kind: "pull"})
	w.must(w.s.Refresh(w.ctx))
	b := w.other()
	w.post("q", "T", "a")
	w.post("r", "T", "b")
	w.number(w.s, s.ID)
	leases := w.claim(w.node("n"), everything())
	slices.SortFunc(leases, func(x, y *pg.Lease) int { return strings.Compare(x.Queue, y.Queue) })

	// the settle of q has written its row of fanout, with the earlier time, and has not committed
	held, finish := hold(w.s, 1)
	ended := make(chan error, 1)
	go func() { _, err := w.s.Settle(w.ctx, []*pg.Answer{w.answer(leases[0], done())}); ended <- err }()
	<-held
	w.later(time.Second)
	b.s.SetNow(&w.now)
	_, err := b.s.Settle(w.ctx, []*pg.Answer{w.answer(leases[1], done())})
	w.must(err)
	w.number(b.s, s.ID)
	w.same(w.feed(s.ID, 2), "r/b done")
	finish(nil)
	w.must(<-ended)
	w.same(w.feed(s.ID, 3)) // committed, and not numbered
	w.number(b.s, s.ID)
	w.same(w.feed(s.ID, 3), "q/a done")

	// the numbering is open, and a settle commits meanwhile; a second numbering does not wait
	w.post("q", "T", "c")
	held, finish = hold(w.s, 1)
	go func() { _, err := w.s.Deliver(w.ctx, s.ID, nil, 0); ended <- err }()
	<-held
	l := func() *pg.Lease {
		n, err := b.s.Register(w.ctx, "n2", "test", time.Minute)
		w.must(err)
		l, _, err := b.s.Claim(w.ctx, n, everything())
		w.must(err)
		return l[0]
	}()
	w.later(time.Second)
	b.s.SetNow(&w.now)
	_, err = b.s.Settle(w.ctx, []*pg.Answer{w.answer(l, done())})
	w.must(err)
	w.number(b.s, s.ID)
	w.same(w.feed(s.ID, 4))
	finish(nil)
	w.must(<-ended)
	w.same(w.feed(s.ID, 4), "q/c accepted")
	w.number(b.s, s.ID)
	w.same(w.feed(s.ID, 4), "q/c accepted", "q/c done")

	// a numbering that dies leaves everything to the next one
	w.post("q", "T", "d")
	held, finish = hold(w.s, 1)
	go func() { _, err := w.s.Deliver(w.ctx, s.ID, nil, 0); ended <- err }()
	<-held
	finish(errRolledBack)
	if err := <-ended; !errors.Is(err, errRolledBack) {
		t.Fatal(err)
	}
	w.number(b.s, s.ID)
	w.same(w.feed(s.ID, 6), "q/d accepted")
}

func (w *world) take(s *stores.Store, line int32, room int, done ...pg.Receipt) []string {
	w.t.Helper()
	h, err := s.Deliver(w.ctx, line, done, room)
	w.must(err)
	w.due = h.Due
	said := []string{}
	for _, d := range h.Due {
		tx, err := w.s.Transaction(w.ctx, w.id, d.ID)
		w.must(err)
		said = append(said, fmt.Sprintf("%s/%s %s %d", tx.Queue, tx.UID, d.Event, d.Attempts))
	}
	slices.Sort(said)
	return said
}

// receipt is what came of the delivery that take handed out i-th.
func (w *world) receipt(i int, state string, again time.Duration) pg.Receipt {
	return pg.Receipt{Delivery: w.due[i], State: state, Again: again, Try: []byte(`{"status":1}`), Message: "because"}
}

func TestAWebhookIsInOrderPerQueueWhateverFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	s := w.subscribe(outbox.Subscription{Name: "s", Kind: "webhook"})
	b := w.other().s
	w.post("q", "T", "a", "b", "c")
	w.post("r", "T", "x", "y")
	w.same(w.take(w.s, s.ID, 10), "q/a accepted 1", "r/x accepted 1")
	slices.SortFunc(w.due, func(x, y *pg.Delivery) int { return int(x.ID.Queue - y.ID.Queue) })
	first := w.due
	w.same(w.take(b, s.ID, 10)) // another node gets nothing of what is out
	w.due = first
	// a fails: q waits, r goes on; while something fails, one at a time goes out
	w.same(w.take(w.s, s.ID, 10, w.receipt(0, "pending", time.Minute)))
	w.due = first
	w.same(w.take(w.s, s.ID, 10, w.receipt(1, "delivered", 0)), "r/y accepted 1")
	w.same(w.take(w.s, s.ID, 10, w.receipt(0, "delivered", 0)))
	w.later(time.Minute)
	w.same(w.take(b, s.ID, 10), "q/a accepted 2")
	stale := w.due[0]
	w.later(time.Minute) // its process dies: the lease is over, somebody else has it
	w.same(w.take(w.s, s.ID, 10), "q/a accepted 3")
	current := w.due[0]
	w.due = []*pg.Delivery{stale}
	w.same(w.take(b, s.ID, 10, w.receipt(0, "delivered", 0))) // too late: it counts for nothing
	w.due = []*pg.Delivery{current}
	w.same(w.take(w.s, s.ID, 10, w.receipt(0, "failed", 0)), "q/b accepted 1")
	w.same(w.take(w.s, s.ID, 10, w.receipt(0, "delivered", 0)), "q/c accepted 1")
	w.same(w.take(w.s, s.ID, 10, w.receipt(0, "delivered", 0)))
	list, err := w.s.Deliveries(w.ctx, w.id, pg.DeliveryFilter{State: []string{"failed"}, Limit: 10})
	w.must(err)
	if len(list) != 1 || list[0].Attempts != 3 || list[0].Error != "because" || string(list[0].Tries) != `[{"status": 1}, {"status": 1}]` {
		t.Fatalf("%+v", list)
	}
	w.same(w.lines(`SELECT concat_ws(' ', subscription, pending, failed, delivered_24h) FROM report.deliveries`), "s 0 1 4") // the late one is not counted
	// what failed is resent, and all once more in their order
	n, err := w.s.Redeliver(w.ctx, w.by, "s", time.Time{}, w.now.Add(time.Hour), false)
	w.must(err)
	w.same(w.take(w.s, s.ID, 10), "q/a accepted 4")
	w.same(w.take(w.s, s.ID, 10, w.receipt(0, "delivered", 0)))
	all, err := w.s.Redeliver(w.ctx, w.by, "s", time.Time{}, w.now.Add(time.Hour), true)
	w.must(err)
	w.same(w.take(w.s, s.ID, 10), "q/a accepted 5", "r/x accepted 2")
	if n != 1 || all != 5 {
		t.Errorf("redelivered %d and %d", n, all)
	}
}

func TestAWebhookThatFailsForFiveDaysIsDisabledAndKeepsItsRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	s := w.subscribe(outbox.Subscription{Name: "s", Kind: "webhook", OnError: "block"})
	w.post("q", "T", "a")
	w.same(w.take(w.s, s.ID, 10), "q/a accepted 1")
	w.take(w.s, s.ID, 0, w.receipt(0, "pending", time.Hour))
	w.later(5*24*time.Hour + time.Second)
	_, err := w.s.EnsureDays(w.ctx)
	w.must(err)
	w.same(w.take(w.s, s.ID, 10), "q/a accepted 2")
	w.post("q", "T", "b")
	w.same(w.take(w.s, s.ID, 10, w.receipt(0, "pending", time.Hour)))
	v, err := w.s.Subscription(w.ctx, w.id, "s")
	w.must(err)
	if v.Enabled || v.DisabledReason != "nothing could be delivered for 5 days" || v.Pending != 2 || v.FailingSince == nil {
		t.Errorf("%+v", v)
	}
	w.later(2 * time.Hour)
	w.same(w.take(w.s, s.ID, 10))
	_, err = w.s.EnableSubscription(w.ctx, w.by, "s", true)
	w.must(err)
	w.same(w.take(w.s, s.ID, 10), "q/a accepted 3")
	w.same(w.take(w.s, s.ID, 10, w.receipt(0, "delivered", 0)), "q/b accepted 1")
	w.must(w.s.RemoveSubscription(w.ctx, w.by, "s"))
	w.same(w.take(w.s, s.ID, 10, w.receipt(0, "delivered", 0)))
}
