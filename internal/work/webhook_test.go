package work_test

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/deliveries"
	"github.com/postern-dev/postern/internal/remote"
)

// receiver is an endpoint that believes nothing: it verifies every message by the published text of
// Standard Webhooks 1.0.0, with no code of ours.
type receiver struct {
	*httptest.Server
	t       *testing.T
	secrets [][]byte
	public  ed25519.PublicKey

	mu     sync.Mutex
	answer func(n int, m told) (status int, header http.Header) // nil: 200
	heard  []told
}

// told is one message that arrived.
type told struct {
	ID, Event, UID, Queue, State string
	Raw                          string
}

func newReceiver(t *testing.T, secrets ...[]byte) *receiver {
	r := &receiver{t: t, secrets: secrets}
	r.Server = httptest.NewServer(http.HandlerFunc(r.hear))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) hear(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return
	}
	id, at := q.Header.Get("webhook-id"), q.Header.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if age := time.Since(time.Unix(seconds, 0)); err != nil || age > time.Minute || age < -time.Minute {
		r.t.Errorf("timestamp %q", at)
	}
	valid := map[string]bool{}
	for part := range strings.SplitSeq(q.Header.Get("webhook-signature"), " ") {
		version, signature, _ := strings.Cut(part, ",")
		raw, _ := base64.StdEncoding.DecodeString(signature)
		for i, s := range r.secrets {
			mac := hmac.New(sha256.New, s)
			fmt.Fprintf(mac, "%s.%s.%s", id, at, body)
			if version == "v1" && hmac.Equal(mac.Sum(nil), raw) {
				valid[fmt.Sprint(i)] = true
			}
		}
		if version == "v1a" && r.public != nil && ed25519.Verify(r.public, fmt.Appendf(nil, "%s.%s.%s", id, at, body), raw) {
			valid["v1a"] = true
		}
	}
	for i := range r.secrets {
		if !valid[fmt.Sprint(i)] {
			r.t.Errorf("message %s is not signed with secret %d: %s", id, i, q.Header.Get("webhook-signature"))
		}
	}
	if r.public != nil && !valid["v1a"] {
		r.t.Errorf("message %s is not signed with the installation's key: %s", id, q.Header.Get("webhook-signature"))
	}
	var m struct {
		Type      string
		Timestamp time.Time
		Data      struct{ UID, Queue, State, Event string }
	}
	if err := json.Unmarshal(body, &m); err != nil || m.Timestamp.IsZero() || m.Data.Event != m.Type {
		r.t.Errorf("message %s: %v: %s", id, err, body)
	}
	r.mu.Lock()
	e := told{id, m.Type, m.Data.UID, m.Data.Queue, m.Data.State, string(body)}
	r.heard = append(r.heard, e)
	n, answer := len(r.heard), r.answer
	r.mu.Unlock()
	if answer != nil {
		status, header := answer(n, e)
		for k, v := range header {
			w.Header()[k] = v
		}
		w.WriteHeader(status)
	}
}

func (r *receiver) list() []told {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.heard)
}

func (r *receiver) set(answer func(n int, m told) (int, http.Header)) {
	r.mu.Lock()
	r.answer = answer
	r.mu.Unlock()
}

func always(status int) func(int, told) (int, http.Header) {
	return func(int, told) (int, http.Header) { return status, nil }
}

// until waits for a condition, for two minutes at most. A delivery that a dead node had out is made again after 30 s.
func (h *house) until(what string, ok func() bool) {
	h.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			h.t.Fatalf("waited in vain: %s", what)
		}
	}
}

func (h *house) subscribe(v outbox.Subscription, secret []byte) *deliveries.Subscription {
	h.t.Helper()
	if v.OnError == "" {
		v.OnError = "skip"
	}
	_, err := h.s.Deliveries.PutSubscription(h.ctx, h.by, v, secret, 0)
	h.must(err)
	s, err := h.s.Deliveries.Subscription(h.ctx, h.by.Context, v.Name)
	h.must(err)
	return s
}

// inOrder compares the messages of each queue with what is wanted: each once, in the order of its first arrival. A
// message that arrived again is passed over.
func (r *receiver) inOrder(want map[string][]string) {
	r.t.Helper()
	got, seen := map[string][]string{}, map[string]bool{}
	for _, m := range r.list() {
		if !seen[m.ID] {
			seen[m.ID] = true
			got[m.Queue] = append(got[m.Queue], m.UID+" "+m.State)
		}
	}
	for q, list := range want {
		if !slices.Equal(got[q], list) {
			r.t.Errorf("queue %s was told as %v, want %v", q, got[q], list)
		}
	}
	if len(got) != len(want) {
		r.t.Errorf("heard of queues %v, want %v", got, want)
	}
}

func TestAWebhookIsSignedAndInOrderAndItsIDStays(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("T", func(d *outbox.Dispatcher) { d.WorkerURL = remote.NoopURL })
	secret, older := []byte("0123456789abcdef0123456789abcdef"), []byte("another secret, that is rotated.")
	public, private, err := ed25519.GenerateKey(nil)
	h.must(err)
	r := newReceiver(t, older)
	s := h.subscribe(outbox.Subscription{Name: "s", Kind: "webhook", URL: r.URL}, older)
	stop := h.engine("n1", nil)
	h.await(h.post("q", "T", "a", "b"), 20*time.Second, outbox.DONE)
	h.until("four messages, and their receipts", func() bool { // one without would be told again by the next node
		v, err := h.s.Deliveries.Subscription(h.ctx, h.by.Context, "s")
		h.must(err)
		return len(r.list()) == 4 && v.Pending == 0
	})
	stop()
	r.inOrder(map[string][]string{"q": {"a WAITING", "b WAITING", "a DONE", "b DONE"}})

	// two secrets are valid while one is rotated, and the installation's key signs besides
	h.must(h.s.Deliveries.RotateSecret(h.ctx, h.by, "s", secret))
	r.secrets, r.public = [][]byte{secret, older}, public
	before := r.list()
	h.engine("n2", func(c *parts) { c.SigningKey = private })
	n, err := h.s.Deliveries.Redeliver(h.ctx, h.by, "s", time.Time{}, time.Now().Add(time.Hour), true)
	h.must(err)
	h.until("all of them again", func() bool { return len(r.list()) == 8 })
	again := r.list()[4:]
	for _, m := range before {
		if !slices.ContainsFunc(again, func(x told) bool { return x.ID == m.ID && x.Raw == m.Raw }) {
			t.Errorf("message %s was not told again as it was", m.ID)
		}
	}
	id, err := h.s.Deliveries.TestSubscription(h.ctx, h.by, "s")
	h.must(err)
	h.until("the test", func() bool { return len(r.list()) == 9 })
	if m := r.list()[8]; m.Event != "subscription.test" || n != 4 {
		t.Errorf("%d %+v", n, m)
	}
	at, err := deliveries.ParseDeliveryID(id)
	h.must(err)
	h.until("its receipt", func() bool {
		d, err := h.s.Deliveries.Delivery(h.ctx, h.by.Context, at)
		h.must(err)
		return d.State == "delivered" && d.Subscription == "s" && strings.Contains(string(d.Tries), `"status": 200`)
	})
	if v, err := h.s.Deliveries.Subscription(h.ctx, h.by.Context, "s"); err != nil || v.Pending != 0 || v.Cursor != v.Newest || v.ID != s.ID {
		t.Errorf("%+v %v", v, err)
	}
}

func TestAnEndpointThatFailsHoldsBackItsQueueOnly(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("T", func(d *outbox.Dispatcher) { d.WorkerURL = remote.NoopURL })
	secret := []byte("0123456789abcdef0123456789abcdef")
	target := newReceiver(t, secret)
	moved := newReceiver(t, secret)
	gone := newReceiver(t, secret)
	gone.set(always(http.StatusGone))
	moved.set(func(int, told) (int, http.Header) { return 307, http.Header{"Location": {target.URL}} })
	release := make(chan struct{})
	hangs := newReceiver(t, secret)
	hangs.set(func(int, told) (int, http.Header) { <-release; return 500, nil })
	t.Cleanup(func() { close(release) }) // before the server is closed, which waits for its calls
	away := newReceiver(t, secret)
	away.Close()
	picky := newReceiver(t, secret)
	picky.set(func(_ int, m told) (int, http.Header) {
		if m.UID == "bad" {
			return 400, nil
		}
		return 204, nil
	})
	done := []outbox.Event{outbox.EventDone}
	for name, r := range map[string]*receiver{"moved": moved, "gone": gone, "hangs": hangs, "away": away, "picky": picky} {
		h.subscribe(outbox.Subscription{Name: name, Kind: "webhook", URL: r.URL, Events: done}, secret)
	}
	h.subscribe(outbox.Subscription{Name: "private", Kind: "webhook", URL: "http://10.255.255.1/", Events: done}, secret)
	h.engine("n1", nil)
	start := time.Now()
	ids := append(h.post("q", "T", "good", "bad", "after"), h.post("r", "T", "other")...)
	h.await(ids, soon, outbox.DONE)
	if took := time.Since(start); took > 18*time.Second { // one that hangs is given up after 20 s
		t.Errorf("dispatch waited %s for endpoints", took)
	}
	h.until("what picky takes", func() bool {
		heard := 0
		for _, m := range picky.list() {
			if m.UID != "bad" {
				heard++
			}
		}
		return heard == 2 && len(picky.list()) >= 4 // bad was tried again
	})
	for _, m := range picky.list() {
		if m.UID == "after" {
			t.Error("what stands behind a failing one was told before it")
		}
	}
	picky.set(nil)
	h.until("bad is taken, and what stands behind it goes", func() bool {
		list := picky.list()
		return list[len(list)-1].UID == "after"
	})
	why := func(name string) *deliveries.DeliveryRow {
		list, err := h.s.Deliveries.Deliveries(h.ctx, h.by.Context, deliveries.DeliveryFilter{Subscription: []string{name}, Ascending: true, Limit: 10})
		h.must(err)
		for _, d := range list {
			if d.Error != "" && d.State == "pending" {
				return d
			}
		}
		return &deliveries.DeliveryRow{}
	}
	h.until("each failure is told as it was", func() bool {
		return strings.Contains(why("moved").Error, "307") && strings.Contains(why("away").Error, "listens") && strings.Contains(why("private").Error, "POSTERN_WORKER_ALLOW_CIDR")
	})
	if len(target.list()) != 0 {
		t.Error("a redirect was followed")
	}
	h.until("who is gone is left alone", func() bool {
		v, err := h.s.Deliveries.Subscription(h.ctx, h.by.Context, "gone")
		h.must(err)
		return !v.Enabled && strings.Contains(v.DisabledReason, "410")
	})
	v, err := h.s.Deliveries.Subscription(h.ctx, h.by.Context, "away")
	h.must(err)
	if v.FailingSince == nil || v.Pending != 4 {
		t.Errorf("%+v", v)
	}
}

// While transactions come and go on two nodes, a subscription is made, and the node that delivers is killed
// in the middle: from since on every event arrives, and no queue out of order.
func TestNothingIsMissingFromSinceOnWhoeverDies(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("T", func(d *outbox.Dispatcher) { d.WorkerURL = remote.NoopURL })
	secret := []byte("0123456789abcdef0123456789abcdef")
	r := newReceiver(t, secret)
	h.engine("n1", nil)
	stop := h.engine("n2", nil)
	poster := h.store() // has its own list of subscriptions, and reads it as it likes
	const queues, each = 3, 120
	var all []outbox.ID
	var mu sync.Mutex
	var posting sync.WaitGroup
	for q := range queues {
		posting.Go(func() {
			for i := range each {
				uid := fmt.Sprintf("q%d-%03d", q, i)
				out, err := poster.Ingest(h.ctx, []*pg.Submission{{ContextID: h.by.Context, Queue: fmt.Sprintf("q%d", q), Type: "T", UID: uid, Hash: []byte(uid), Data: json.RawMessage(`{}`)}}, false)
				if err != nil || out[0].Err != nil {
					t.Error(err, out)
					return
				}
				mu.Lock()
				all = append(all, out[0].ID)
				n := len(all)
				mu.Unlock()
				switch n {
				case 50:
					h.subscribe(outbox.Subscription{Name: "s", Kind: "webhook", URL: r.URL}, secret)
				case 200:
					go stop() // its calls are cut off in the middle
				}
				time.Sleep(35 * time.Millisecond)
			}
		})
	}
	posting.Wait()
	h.await(all, 60*time.Second, outbox.DONE)
	s, err := h.s.Deliveries.Subscription(h.ctx, h.by.Context, "s")
	h.must(err)
	want := map[string]bool{}
	rows, err := h.s.Pool().Query(h.ctx, `SELECT postern.public_id(t.queue_id, t.seq, t.day, postern.salt(t.created_at, t.moved_from)) || '.' || to_hex(postern.micros(t.created_at)) || '.WAITING' FROM postern.task t WHERE t.created_at >= $1
		UNION ALL SELECT postern.public_id(t.queue_id, t.seq, t.day, postern.salt(t.created_at, t.moved_from)) || '.' || to_hex(postern.micros(o.done_at)) || '.' || o.state FROM postern.outcome o JOIN postern.task t USING (queue_id, seq, day) WHERE o.done_at >= $1`, *s.Since)
	h.must(err)
	for rows.Next() {
		var id string
		h.must(rows.Scan(&id))
		want[id] = true
	}
	h.must(rows.Err())
	if len(want) < queues*each/4 {
		t.Fatalf("only %d events are from after since: the load was over too soon", len(want))
	}
	missing := func() (list []string) {
		heard := map[string]bool{}
		for _, m := range r.list() {
			heard[m.ID] = true
		}
		for id := range want {
			if !heard[id] {
				list = append(list, id)
			}
		}
		return list
	}
	defer func() {
		if m := missing(); len(m) > 0 {
			t.Errorf("%d of %d events never arrived: %v", len(m), len(want), m[:min(5, len(m))])
		}
	}()
	h.until("every event", func() bool { return len(missing()) == 0 })
	last, seen := map[string]string{}, map[string]bool{}
	for _, m := range r.list() {
		key := m.Queue + m.State
		if !seen[m.ID] && m.UID < last[key] {
			t.Errorf("%s %s came after %s", m.UID, m.State, last[key])
		}
		if !seen[m.ID] {
			last[key] = m.UID
		}
		seen[m.ID] = true
		if m.State == "DONE" && want[strings.TrimSuffix(m.ID, "DONE")+"WAITING"] && !seen[strings.TrimSuffix(m.ID, "DONE")+"WAITING"] {
			t.Errorf("%s was done before it was accepted", m.UID)
		}
	}
}
