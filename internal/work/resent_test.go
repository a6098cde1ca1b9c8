package work_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remotetest"
)

// A worker that answers 500 and has never seen the token is sent it once more at once. Then its queue waits ever
// longer, a pause holds it, and its sender serves others.
func TestWhatIsSentAgainInVainWaitsAsBlocked(t *testing.T) {
	h := newHouse(t)
	h.sender("p", "one")
	h.dispatcher("T", func(d *outbox.Dispatcher) { d.Pool, d.Breaker = "p", 0 })
	dispatch := func(typ, uid string) remotetest.Match {
		return remotetest.Match{Op: remotetest.OpDispatch, Type: typ, UID: uid}
	}
	h.fake.Script(dispatch("T", "bad"), remotetest.HTTP(500, "oops"))
	h.fake.Script(dispatch("T", "good"), remotetest.Done("ok"))
	h.engine("n", nil)
	bad := h.post("q", "T", "bad")
	calls := func() int { return len(h.fake.Calls(dispatch("T", "bad"))) }
	h.within("it is blocked after it was sent again", func() bool {
		tx, err := h.s.Transaction(h.ctx, h.by.Context, bad[0])
		h.must(err)
		return calls() >= 2 && tx.State == outbox.WAITING && tx.Class == outbox.ClassBlocked
	})
	h.await(h.post("r", "T", "good"), time.Minute, outbox.DONE) // its only sender is free for others
	time.Sleep(8 * time.Second)
	if n := calls(); n > 6 {
		t.Errorf("%d calls within ten seconds: want ever fewer", n)
	}
	for _, c := range h.fake.Calls(dispatch("T", "bad")) {
		if c.Attempt != 1 || c.Retries != 0 {
			t.Errorf("retries %d, attempt %d: want none, of the first", c.Retries, c.Attempt)
		}
	}
	_, err := h.s.PauseQueue(h.ctx, h.by, "q", true)
	h.must(err)
	h.within("no call of it is out", func() bool { return h.held() == 0 })
	n := calls()
	time.Sleep(10 * time.Second)
	if more := calls() - n; more > 0 {
		t.Errorf("%d calls of a queue that is paused", more)
	}
	h.fake.Script(dispatch("T", "bad"), remotetest.Done("ok"))
	_, err = h.s.PauseQueue(h.ctx, h.by, "q", false)
	h.must(err)
	h.await(bad, time.Minute, outbox.DONE)
}

// held counts the queues that nodes hold.
func (h *house) held() (n int) {
	h.t.Helper()
	h.must(h.s.Pool().QueryRow(h.ctx, `SELECT count(*) FROM postern.queue WHERE node_id IS NOT NULL`).Scan(&n))
	return n
}

// Where the last answers of several queues came to nothing so, the gate closes, and one call goes out at a time.
func TestAnswersThatTellNothingCloseTheGate(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("T", nil)
	all := remotetest.Match{Op: remotetest.OpDispatch, Type: "T"}
	h.fake.Script(all, remotetest.HTTP(500, "oops"))
	h.engine("n", nil)
	var ids []outbox.ID
	for i := range 30 {
		ids = append(ids, h.post(fmt.Sprint("q", i), "T", fmt.Sprint("t", i))...)
	}
	h.within("the gate closes", func() bool { return h.failures("T") > 0 })
	h.within("calls that are out end", func() bool { return h.held() <= 1 })
	n, since := len(h.fake.Calls(all)), time.Now()
	time.Sleep(10 * time.Second)
	more, seconds := len(h.fake.Calls(all))-n, time.Since(since).Seconds()
	if float64(more) > 1.2*seconds {
		t.Errorf("%d calls within %.0f seconds while the gate is closed", more, seconds)
	}
	h.fake.Script(all, remotetest.Done("ok"))
	h.await(ids, 90*time.Second, outbox.DONE)
}

// A transaction that takes its worker down with it each time, and was never seen by the one that starts anew, is sent
// ever more seldom, too: the question between finds no worker, and the lease that sent it is over by then.
func TestWhatTakesItsWorkerDownIsSentEverMoreSeldom(t *testing.T) {
	h := newHouse(t)
	var calls, down atomic.Int64
	h.fake.Script(dispatches, remotetest.Done("ok"))
	poison := atomic.Bool{}
	poison.Store(true)
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch dispatch := strings.HasPrefix(r.URL.Path, "/dispatch/"); {
		case dispatch && poison.Load():
			calls.Add(1)
			down.Store(time.Now().Add(500 * time.Millisecond).UnixNano())
			panic(http.ErrAbortHandler)
		case !dispatch && time.Now().UnixNano() < down.Load():
			panic(http.ErrAbortHandler)
		}
		h.fake.ServeHTTP(w, r)
	}))
	t.Cleanup(worker.Close)
	h.dispatcher("T", func(d *outbox.Dispatcher) { d.WorkerURL, d.Breaker = worker.URL, 0 })
	h.engine("n", nil)
	ids := h.post("q", "T", "a")
	h.within("it was sent again in vain", func() bool {
		tx, err := h.s.Transaction(h.ctx, h.by.Context, ids[0])
		h.must(err)
		return calls.Load() > 1 && tx.State == outbox.WAITING
	})
	time.Sleep(15 * time.Second)
	if n := calls.Load(); n > 8 {
		t.Errorf("%d calls within fifteen seconds: want ever fewer", n)
	}
	poison.Store(false)
	for _, tx := range h.await(ids, 90*time.Second, outbox.DONE) {
		if tx.Attempt != 1 || tx.Retries != 0 {
			t.Errorf("attempt %d, retries %d: want the first, and none", tx.Attempt, tx.Retries)
		}
	}
}
