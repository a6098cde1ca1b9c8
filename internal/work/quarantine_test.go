package work_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/verify"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/remotetest"
	"github.com/postern-dev/postern/internal/work"
)

// enter puts a scope into quarantine, and returns when every node knows it.
func (h *house) enter(q pg.Quarantine) {
	h.t.Helper()
	q.Reason = "because"
	h.must(h.s.EnterQuarantine(h.ctx, h.by, q))
	ctx, cancel := context.WithTimeout(h.ctx, time.Minute)
	defer cancel()
	h.must(h.s.AwaitQuarantine(ctx))
}

func (h *house) release(q pg.Quarantine) {
	h.t.Helper()
	_, err := h.s.ReleaseQuarantine(h.ctx, h.by, q, true)
	h.must(err)
}

// Behind the entering no call begins, of a worker or of an endpoint, though there is work for both; posts are accepted,
// and all go out once and in order when it is released.
func TestBehindAQuarantineNoCallBegins(t *testing.T) {
	h := newHouse(t)
	var begun atomic.Int64
	counted := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun.Add(1)
		h.fake.ServeHTTP(w, r)
	}))
	t.Cleanup(counted.Close)
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, Type: "FAILS"}, remotetest.Fail("x", "not now"))
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, Type: "DONE"}, remotetest.Done(map[string]any{"ok": true}).Slow(50*time.Millisecond))
	h.fake.IncludeAll(false)
	for _, typ := range []string{"DONE", "ACCEPTED", "FAILS"} {
		h.dispatcher(typ, func(d *outbox.Dispatcher) {
			d.WorkerURL = counted.URL
			retries := 1000
			d.Retry.MaxRetries = &retries
		})
	}
	_, err := h.s.Deliveries.PutSubscription(h.ctx, h.by, outbox.Subscription{Name: "all", Kind: "webhook", URL: counted.URL + "/endpoint", OnError: "skip"}, []byte("0123456789abcdef01234567"), 0)
	h.must(err)
	h.engine("n1", func(c *parts) { c.Store = h.s })
	h.engine("n2", nil)
	var ids []outbox.ID
	posts := func(round string, each int, types ...string) { // in eight queues of a type
		for _, typ := range types {
			for q := range 8 {
				var uids []string
				for i := range each {
					uids = append(uids, fmt.Sprintf("%s-%s-%d-%d", typ, round, q, i))
				}
				if list := h.post(fmt.Sprintf("%s%d", typ, q), typ, uids...); typ == "DONE" {
					ids = append(ids, list...)
				}
			}
		}
	}
	posts("before", 2, "ACCEPTED", "FAILS")
	posts("before", 100, "DONE") // five seconds of work for one call after the other
	h.enter(pg.Quarantine{})
	was := begun.Load()
	posts("meanwhile", 2, "DONE", "ACCEPTED")
	time.Sleep(2 * time.Second) // longer than the waits between tries and polls
	if n := begun.Load() - was; n != 0 {
		t.Errorf("%d calls began behind the entering", n)
	}
	all, err := h.s.Transactions(h.ctx, h.by.Context, ids)
	h.must(err)
	waiting := 0
	for _, tx := range all {
		if tx.State == outbox.WAITING {
			waiting++
		}
	}
	if waiting < 16 {
		t.Errorf("%d wait: too few for this test to say anything", waiting)
	}
	h.release(pg.Quarantine{})
	h.await(ids, time.Minute, outbox.DONE)
	order := map[string][]int64{}
	for _, c := range h.fake.Calls(remotetest.Match{Op: remotetest.OpDispatch, Type: "DONE"}) {
		if n := h.fake.Executed(c.Token); n != 1 {
			t.Errorf("%s was executed %d times", c.Token, n)
		}
		order[c.Queue] = append(order[c.Queue], c.Position)
	}
	for queue, list := range order {
		if !slices.IsSorted(list) {
			t.Errorf("queue %s went out in the order %v", queue, list)
		}
	}
	h.sound()
}

// sound fails the test where an invariant does not hold.
func (h *house) sound() {
	h.t.Helper()
	found, err := verify.Violations(h.ctx, h.s.Pool())
	h.must(err)
	for _, v := range found {
		h.t.Error(v)
	}
}

// copied is the house on a copy of its database, with the same worker. The copy does not see later changes of this one.
func (h *house) copied() *house {
	h.t.Helper()
	h.s.Close()
	c := &house{t: h.t, db: h.db.Copy(h.t), fake: h.fake, ctx: h.ctx, by: h.by}
	h.s, c.s = h.store(), c.store()
	return c
}

// reconcile asks the workers about everything, and returns how that ended.
func (h *house) reconcile(q pg.Quarantine) *pg.QuarantinedScope {
	h.t.Helper()
	client := remotetest.Client(h.t)
	for anew := true; ; anew = false {
		v, err := work.Reconcile(h.ctx, h.s, remote.Mux{Next: client}, h.by, q, anew)
		h.must(err)
		if v.ReconciledAt != nil {
			return v
		}
	}
}

// The tokens find all that a worker did in the time that a restore has lost, and nothing of it is executed twice,
// though this worker executes a token again that is sent again. A transaction that it never saw goes out at the
// release.
func TestARestoredDatabaseAsksWhatWasDoneInTheLostTime(t *testing.T) {
	h := newHouse(t)
	h.fake.Dedupe(false)
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, Type: "DONE"}, remotetest.Done(map[string]any{"ok": true}))
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, Type: "RETRY", Attempt: 1}, remotetest.Fail("x", "not now"))
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, Type: "RETRY", Attempt: 2}, remotetest.Done(map[string]any{"ok": true}))
	for _, typ := range []string{"DONE", "RETRY", "ACCEPTED"} {
		h.dispatcher(typ, func(d *outbox.Dispatcher) {
			if typ == "RETRY" {
				d.Retry.Initial = outbox.Duration(time.Hour)
			}
		})
	}
	// before the backup: one failed and waits, one is accepted and not included
	stop := h.engine("before", nil)
	retried, accepted := h.post("retried", "RETRY", "retried"), h.post("accepted", "ACCEPTED", "accepted")
	h.await(retried, time.Minute, outbox.RETRY)
	h.await(accepted, time.Minute, outbox.REVISION)
	stop()
	waiting := slices.Concat(h.post("waiting", "DONE", "w1", "w2", "w3"), h.post("", "DONE", "unordered"))
	never := h.post("never", "DONE", "n1", "n2")
	late := h.post("late", "ACCEPTED", "late")
	c := h.copied()

	// the lost time
	_, err := h.s.PauseQueue(h.ctx, h.by, "never", true)
	h.must(err)
	stop = h.engine("lost", nil)
	h.await(waiting, time.Minute, outbox.DONE)
	h.await(late, time.Minute, outbox.REVISION)
	_, err = h.s.RetryNow(h.ctx, h.by, retried[0])
	h.must(err)
	h.await(retried, time.Minute, outbox.DONE)
	h.fake.IncludeAll(true)
	h.await(slices.Concat(accepted, late), time.Minute, outbox.DONE)
	stop()

	// the restored database
	h = c
	h.must(h.s.EnterQuarantine(h.ctx, h.by, pg.Quarantine{Reason: "restored"}))
	h.engine("after", nil)
	var calls = len(h.fake.Calls(remotetest.Match{Op: remotetest.OpDispatch}))
	v := h.reconcile(pg.Quarantine{})
	if v.Asked != 9 || v.Moved != 7 || v.Unknown != 2 || v.Open != 0 {
		t.Errorf("asked about %d, moved %d, %d unknown and %d open: want 9, 7 (four that waited, the retry, the late one "+
			"and the accepted one), 2 and 0", v.Asked, v.Moved, v.Unknown, v.Open)
	}
	h.await(slices.Concat(waiting, retried, accepted, late), time.Minute, outbox.DONE)
	h.await(never, time.Minute, outbox.WAITING)
	h.sound()
	if again := h.reconcile(pg.Quarantine{}); again.Open != 0 || again.Moved != 0 {
		t.Errorf("the second time it moved %d, and %d are open", again.Moved, again.Open)
	}
	if n := len(h.fake.Calls(remotetest.Match{Op: remotetest.OpDispatch})); n != calls {
		t.Errorf("%d dispatches while everything was in quarantine", n-calls)
	}
	_, err = h.s.ReleaseQuarantine(h.ctx, h.by, pg.Quarantine{}, false)
	h.must(err)
	h.await(never, time.Minute, outbox.DONE)
	for _, call := range h.fake.Calls(remotetest.Match{Op: remotetest.OpDispatch}) {
		if n := h.fake.Executed(call.Token); n > 1 {
			t.Errorf("%s of %s was executed %d times", call.Token, call.UID, n)
		}
	}
	h.sound()
}

// What a worker did in the lost time is recorded to the end of each queue: a hash that it knows is asked about until it
// is included, so that what was executed behind it is learned, too; and attempts of the lost time use up their retries.
func TestARestoredDatabaseLearnsWhatWasDoneBehindAHash(t *testing.T) {
	h := newHouse(t)
	h.fake.Dedupe(false)
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, Type: "DONE"},
		remotetest.Done(map[string]any{"ok": true}))
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, Type: "FAILS"}, remotetest.Fail("x", "not now"))
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, UID: "p1"}, remotetest.Accept("0xp1"))
	for _, typ := range []string{"DONE", "ACCEPTED", "FAILS"} {
		h.dispatcher(typ, func(d *outbox.Dispatcher) {
			once := 1
			d.Retry.MaxRetries, d.Retry.Initial = &once, outbox.Duration(time.Millisecond)
			d.Inclusion.PollEvery = outbox.Duration(100 * time.Millisecond)
		})
	}
	// before the backup: of one queue the head is accepted and not included, of the other nothing has gone out
	stop := h.engine("before", nil)
	begun := h.post("begun", "ACCEPTED", "b1")
	h.await(begun, time.Minute, outbox.REVISION)
	stop()
	done := slices.Concat(begun, h.post("begun", "DONE", "b2"), h.post("begun", "ACCEPTED", "b3"),
		h.post("waits", "ACCEPTED", "w1", "w2"), h.post("waits", "DONE", "w3"))
	failed := h.post("waits", "FAILS", "w4")
	later := h.post("waits", "ACCEPTED", "w5")
	pending := h.post("pends", "ACCEPTED", "p1")
	c := h.copied()

	// the lost time
	stop = h.engine("lost", nil)
	h.await(pending, time.Minute, outbox.REVISION)
	h.fake.IncludeAll(true)
	h.await(slices.Concat(done, later, pending), time.Minute, outbox.DONE)
	h.await(failed, time.Minute, outbox.FAILED)
	stop()
	h.fake.SetStatus("0xp1", outbox.Status{State: outbox.StatusPending})
	for _, call := range h.fake.Calls(remotetest.Match{Op: remotetest.OpDispatch, Type: "FAILS"}) {
		h.fake.SetStatus(call.Token, outbox.Status{State: outbox.StatusFailed, FailureReason: "not now"})
	}

	// the restored database
	h = c
	h.must(h.s.EnterQuarantine(h.ctx, h.by, pg.Quarantine{Reason: "restored"}))
	calls := len(h.fake.Calls(remotetest.Match{Op: remotetest.OpDispatch}))
	v := h.reconcile(pg.Quarantine{})
	if v.Asked != 9 || v.Moved != 9 || v.Unknown != 0 || v.Open != 0 {
		t.Errorf("asked about %d, moved %d, %d unknown and %d open: want 9, 9, 0 and 0",
			v.Asked, v.Moved, v.Unknown, v.Open)
	}
	h.await(slices.Concat(done, later), time.Minute, outbox.DONE)
	h.await(failed, time.Minute, outbox.FAILED)
	h.await(pending, time.Minute, outbox.REVISION) // in no block yet: its poll finds out
	h.sound()
	if again := h.reconcile(pg.Quarantine{}); again.Asked != 1 || again.Open != 0 || again.Moved != 0 {
		t.Errorf("the second time it asked about %d, moved %d, and %d are open", again.Asked, again.Moved, again.Open)
	}
	_, err := h.s.ReleaseQuarantine(h.ctx, h.by, pg.Quarantine{}, false)
	h.must(err)
	h.fake.SetStatus("0xp1", outbox.Status{State: outbox.StatusIncluded, BlockHeight: "7", Confirmations: 6})
	h.engine("after", nil)
	h.await(pending, time.Minute, outbox.DONE)
	if n := len(h.fake.Calls(remotetest.Match{Op: remotetest.OpDispatch})); n != calls {
		t.Errorf("%d dispatches of what was executed in the lost time", n-calls)
	}
	h.sound()
}

// A row that changes while the worker is asked, as by the end of a transaction that this one depends on, is read again,
// and the answer recorded.
func TestARowThatChangesDuringTheQuestionsIsReadAgain(t *testing.T) {
	h := newHouse(t)
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, Type: "DONE"},
		remotetest.Done(map[string]any{"ok": true}))
	h.dispatcher("DONE", nil)
	ids := h.post("q", "DONE", "a", "b")
	c := h.copied()
	stop := h.engine("lost", nil)
	h.await(ids, time.Minute, outbox.DONE)
	stop()
	h.fake.IncludeAll(true)

	h = c
	h.must(h.s.EnterQuarantine(h.ctx, h.by, pg.Quarantine{Reason: "restored"}))
	worker := &meddling{Worker: remote.Mux{Next: remotetest.Client(t)}, meddle: func() {
		_, err := h.s.Pool().Exec(h.ctx, `UPDATE postern.queue SET fence = fence + 1`)
		h.must(err)
	}}
	v, err := work.Reconcile(h.ctx, h.s, worker, h.by, pg.Quarantine{}, true)
	h.must(err)
	if v.Moved != 2 || v.Open != 0 {
		t.Errorf("moved %d, and %d are open: want 2 and 0", v.Moved, v.Open)
	}
	h.await(ids, time.Minute, outbox.DONE)
	h.sound()
}

// meddling is a worker beside whose answers something else happens.
type meddling struct {
	remote.Worker
	meddle func()
}

func (m *meddling) Status(ctx context.Context, url, typ, token, hash string) outbox.Status {
	st := m.Worker.Status(ctx, url, typ, token, hash)
	m.meddle()
	return st
}

// A transaction is open if its worker does not answer, or cannot be asked: it is listed, and an ordinary release is
// refused.
func TestWhatIsNotAnsweredIsOpen(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("DONE", nil)
	h.dispatcher("MUTE", func(d *outbox.Dispatcher) { d.Idempotent = true })
	h.post("a", "DONE", "a1", "a2")
	h.post("b", "MUTE", "b1")
	h.must(h.s.EnterQuarantine(h.ctx, h.by, pg.Quarantine{Reason: "restored"}))
	h.fake.HasStatus(false)
	v := h.reconcile(pg.Quarantine{})
	if v.Asked != 3 || v.Open != 2 || v.Unknown != 1 {
		t.Errorf("without a status: asked %d, open %d, unknown %d; want 3, 2 (which cannot be asked) and 1 (which may be sent again)", v.Asked, v.Open, v.Unknown)
	}
	_, err := h.s.ReleaseQuarantine(h.ctx, h.by, pg.Quarantine{}, false)
	if fault.CodeOf(err) != "not_reconciled" {
		t.Errorf("released with two open: %v", err)
	}
	h.fake.Refuse()
	if v = h.reconcile(pg.Quarantine{}); v.Open != 3 {
		t.Errorf("of a worker that is away %d are open, want 3", v.Open)
	}
	status, err := h.s.Quarantine(h.ctx)
	h.must(err)
	if len(status.Open) != 3 || status.Open[0].Why != pg.OpenUnreachable || status.Open[0].Detail == "" {
		t.Errorf("the status lists %+v", status.Open)
	}
	h.fake.Listen(t)
	h.fake.HasStatus(true)
	if v = h.reconcile(pg.Quarantine{}); v.Open != 0 || v.Unknown != 3 {
		t.Errorf("asked again, %d are open and %d unknown", v.Open, v.Unknown)
	}
	_, err = h.s.ReleaseQuarantine(h.ctx, h.by, pg.Quarantine{}, false)
	h.must(err)
}
