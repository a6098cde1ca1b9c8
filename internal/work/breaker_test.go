package work_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remotetest"
)

// ingress stands before a fake worker. While it is broken it answers everything itself, or lets through what passes
// says.
type ingress struct {
	*httptest.Server
	broken atomic.Pointer[http.HandlerFunc]

	mu    sync.Mutex
	asked []string // paths of what it answered itself
}

func newIngress(t *testing.T, worker http.Handler) *ingress {
	in := &ingress{}
	in.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := in.broken.Load()
		if answer == nil {
			worker.ServeHTTP(w, r)
			return
		}
		in.mu.Lock()
		in.asked = append(in.asked, r.URL.Path)
		in.mu.Unlock()
		(*answer)(w, r)
	}))
	t.Cleanup(in.Close)
	return in
}

// breaks lets the ingress answer everything with a status and a body, and mend ends that.
func (in *ingress) breaks(status int, body string) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	})
	in.broken.Store(&answer)
}

func (in *ingress) mend() { in.broken.Store(nil) }

// answered counts what the ingress answered itself, of paths with a prefix.
func (in *ingress) answered(prefix string) (n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, path := range in.asked {
		if strings.HasPrefix(path, prefix) {
			n++
		}
	}
	return n
}

// failures are those of the gate of a type.
func (h *house) failures(typ string) (n int) {
	h.t.Helper()
	h.must(h.s.Pool().QueryRow(h.ctx, `SELECT gate_failures FROM postern.dispatcher WHERE type = $1`, typ).Scan(&n))
	return n
}

// One queue whose head is blocked, by its worker or by another's answer, changes nothing for the others of its type:
// they go out, its sender serves them, and the gate stays open.
func TestABlockedQueueHoldsUpNoOther(t *testing.T) {
	for name, reply := range map[string]remotetest.Reply{
		"by its worker":    remotetest.HTTP(503, `{"error":{"class":"blocked","message":"not this one"}}`),
		"another's answer": remotetest.HTTP(404, "<html>no"),
	} {
		for _, pool := range []string{"", "p"} {
			t.Run(name+" "+pool, func(t *testing.T) {
				h := newHouse(t)
				h.dispatcher("T", func(d *outbox.Dispatcher) { d.Pool = pool })
				if pool != "" {
					h.sender(pool, "a1")
				}
				h.fake.Script(dispatches, remotetest.Done("ok"))
				h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, UID: "bad"}, reply)
				bad := &cell{typ: "T", fate: fates["waits"], fake: h.fake, id: h.post("bad", "T", "bad")[0]}
				h.engine("n1", nil)
				for round := range 3 {
					var ids []outbox.ID
					for q := range 10 {
						ids = append(ids, h.post(fmt.Sprintf("q%d", q), "T", fmt.Sprintf("q%d-%d", q, round))...)
					}
					h.await(ids, 30*time.Second, outbox.DONE)
					h.until("it was called again", func() bool {
						return len(h.fake.Calls(remotetest.Match{Op: remotetest.OpDispatch, UID: "bad"})) > round
					})
				}
				if n := h.failures("T"); n != 0 {
					t.Errorf("one blocked queue closed the gate %d times", n)
				}
				h.until("why says what blocks it", func() bool {
					why, err := h.s.Reads.Why(h.ctx, h.by.Context, bad.id)
					h.must(err)
					return h.blocker(why, bad) != nil
				})
				h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, UID: "bad"}, remotetest.Done("ok"))
				tx := h.await([]outbox.ID{bad.id}, 60*time.Second, outbox.DONE)[bad.id]
				if tx.Attempt != 1 || tx.Retries != 0 {
					t.Errorf("%+v", tx)
				}
				h.holdsTrue()
			})
		}
	}
}

// A worker that blocks a sender keeps that one from what it could sign, also where the sender has no address of its
// own; the other senders of the pool go on.
func TestAWorkerBlocksOneSender(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("T", func(d *outbox.Dispatcher) { d.Pool = "p" })
	h.sender("p", "a1", "a2")
	h.fake.Script(dispatches, remotetest.Done("ok"))
	byA1 := remotetest.Match{Op: remotetest.OpDispatch, Account: "a1"}
	h.fake.Script(byA1, remotetest.FailWith(map[string]any{"code": "NO_FEE_PAYER_AVAILABLE"}))
	h.engine("n1", nil)
	var ids []outbox.ID
	for q := range 20 {
		ids = append(ids, h.post(fmt.Sprintf("q%d", q), "T", fmt.Sprintf("x%d", q))...)
	}
	for id, tx := range h.await(ids, 60*time.Second, outbox.DONE) {
		if tx.Sender != "a2" {
			t.Errorf("%s went out by %s", id, tx.Sender)
		}
	}
	var reason, said string
	h.must(h.s.Pool().QueryRow(h.ctx, `SELECT block_reason, gate_reason FROM postern.sender WHERE account = 'a1'`).
		Scan(&reason, &said))
	if reason != "worker_unreachable" || said == "" || h.failures("T") != 0 {
		t.Errorf("a1 is blocked by %q (%q), and the gate of the type closed %d times", reason, said, h.failures("T"))
	}
	h.fake.Script(byA1, remotetest.Done("ok"))
	h.until("a1 is used again", func() bool {
		h.await(h.post("q", "T", fmt.Sprint(time.Now().UnixNano())), 30*time.Second, outbox.DONE)
		var failures int
		h.must(h.s.Pool().QueryRow(h.ctx, `SELECT gate_failures FROM postern.sender WHERE account = 'a1'`).
			Scan(&failures))
		return failures == 0
	})
}

// The answers of five different queues that came to nothing close the gate of their type, and no other. It is told
// once, by the log and by what people ask. Each probe is another queue's, and one that gets through opens the gate for
// all.
func TestFiveQueuesToWhichNothingCameCloseTheGate(t *testing.T) {
	h := newHouse(t)
	in := newIngress(t, h.fake)
	h.fake.Script(dispatches, remotetest.Done("ok"))
	h.dispatcher("T", func(d *outbox.Dispatcher) { d.WorkerURL, d.Slots = in.URL, 1 })
	h.dispatcher("U", nil)
	in.breaks(403, "<html>forbidden")
	var log logged
	h.engine("n1", func(p *parts) { p.Log = slog.New(&log) })
	var ids []outbox.ID
	for q := range 40 {
		ids = append(ids, h.post(fmt.Sprintf("q%d", q), "T", fmt.Sprintf("x%d", q))...)
	}
	h.until("the gate closed", func() bool { return h.failures("T") > 0 })
	if n := in.answered("/dispatch/"); n < 5 || n > 10 {
		t.Errorf("%d calls went out before the gate closed", n)
	}
	h.await(h.post("u", "U", "u"), 30*time.Second, outbox.DONE)
	h.until("two probes went out", func() bool { return h.failures("T") > 2 })
	calls := map[string]int{}
	for _, c := range h.attempts("T") {
		calls[c]++
	}
	for queue, n := range calls {
		if n > 2 { // once on its own, and perhaps as a probe
			t.Errorf("queue %s was called %d times while others had been called less", queue, n)
		}
	}
	why, err := h.s.Reads.Why(h.ctx, h.by.Context, ids[39])
	h.must(err)
	b := h.blocker(why, &cell{fate: fate{why: "worker_unreachable"}})
	if b == nil || !strings.Contains(b.Detail, "HTTP 403") {
		t.Errorf("why says %+v", why.Blockers)
	}
	in.mend()
	for _, tx := range h.await(ids, 60*time.Second, outbox.DONE) {
		if tx.Attempt != 1 || tx.Retries != 0 {
			t.Errorf("%+v", tx)
		}
	}
	if n := h.failures("T"); n != 0 {
		t.Errorf("the gate is still closed after %d tries", n)
	}
	if n := log.count("nothing came of calls"); n != 1 {
		t.Errorf("the log was told %d times, want once", n)
	}
	h.holdsTrue()
}

// attempts are the queues of the attempts of a type, in the order of their answers.
func (h *house) attempts(typ string) (queues []string) {
	h.t.Helper()
	rows, err := h.s.Pool().Query(h.ctx, `SELECT n.name FROM postern.attempt a
		JOIN postern.queue_name n USING (queue_id)
		JOIN postern.task t USING (queue_id, seq, day) WHERE t.type = $1 ORDER BY a.answered_at`, typ)
	h.must(err)
	for rows.Next() {
		var name string
		h.must(rows.Scan(&name))
		queues = append(queues, name)
	}
	h.must(rows.Err())
	return queues
}

// A head whose call is refused closes the gate once, and no more until it has got through: the others go on meanwhile.
func TestAHeadThatClosedTheGateClosesItNoMore(t *testing.T) {
	h := newHouse(t)
	h.fake.Script(dispatches, remotetest.Done("ok"))
	bad := remotetest.Match{Op: remotetest.OpDispatch, UID: "bad"}
	h.fake.Script(bad, remotetest.HTTP(503, `{"error":{"class":"blocked","scope":"worker"}}`))
	h.dispatcher("T", nil)
	ids := h.post("bad", "T", "bad")
	h.engine("n1", nil)
	h.until("the gate closed", func() bool { return h.failures("T") > 0 })
	h.await(h.post("q", "T", "probe"), 60*time.Second, outbox.DONE) // goes out before the head that closed it
	h.until("the gate opened", func() bool { return h.failures("T") == 0 })
	before := len(h.fake.Calls(bad))
	for n := 0; len(h.fake.Calls(bad)) < before+2; n++ {
		h.await(h.post("q", "T", fmt.Sprintf("x%d", n)), 30*time.Second, outbox.DONE)
		if h.failures("T") > 0 {
			t.Fatal("it closed the gate again")
		}
	}
	h.fake.Script(bad, remotetest.Done("ok"))
	h.await(ids, 60*time.Second, outbox.DONE)
}

// logged keeps the messages of a log.
type logged struct {
	sync.Mutex
	messages []string
}

func (l *logged) Enabled(context.Context, slog.Level) bool { return true }
func (l *logged) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logged) WithGroup(string) slog.Handler            { return l }

func (l *logged) Handle(_ context.Context, r slog.Record) error {
	l.Lock()
	defer l.Unlock()
	l.messages = append(l.messages, r.Message)
	return nil
}

func (l *logged) count(part string) (n int) {
	l.Lock()
	defer l.Unlock()
	for _, m := range l.messages {
		if strings.Contains(m, part) {
			n++
		}
	}
	return n
}

// A gate that is closed keeps calls from going out, and no questions: a transaction that is out already is asked about,
// and ends.
func TestAClosedGateStillAsksWhatCameOfACall(t *testing.T) {
	h := newHouse(t)
	in := newIngress(t, h.fake)
	h.dispatcher("T", func(d *outbox.Dispatcher) { d.WorkerURL = in.URL })
	status := remotetest.Match{Op: remotetest.OpStatus}
	h.fake.Script(dispatches, remotetest.HTTP(500, "oops"))
	h.fake.Script(status, remotetest.Body(`{"state":"maybe"}`))
	out := h.post("out", "T", "out")
	h.engine("n1", nil)
	h.until("it is asked about", func() bool { return len(h.fake.Calls(status)) > 0 })
	shut := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/dispatch/") {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, "<html>forbidden")
			return
		}
		h.fake.ServeHTTP(w, r)
	})
	in.broken.Store(&shut)
	var behind []outbox.ID
	for q := range 10 {
		behind = append(behind, h.post(fmt.Sprintf("q%d", q), "T", fmt.Sprintf("x%d", q))...)
	}
	h.until("the gate closed", func() bool { return h.failures("T") > 0 })
	before := len(h.fake.Calls(status))
	h.until("it is asked about again", func() bool { return len(h.fake.Calls(status)) > before+1 })
	if h.failures("T") == 0 {
		t.Error("a question opened the gate")
	}
	h.fake.Script(status, remotetest.Body(`{"state":"done","done":{"paid":7}}`))
	h.await(out, 60*time.Second, outbox.DONE)
	if h.failures("T") == 0 {
		t.Error("an answer to a question opened the gate")
	}
	h.fake.Script(dispatches, remotetest.Done("ok"))
	in.mend()
	h.await(behind, 60*time.Second, outbox.DONE)
	h.holdsTrue()
}
