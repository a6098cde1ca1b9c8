package work_test

import (
	"crypto/ed25519"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/remote"
)

// postTo posts with a callback for each.
func (h *house) postTo(queue, url string, on []outbox.State, uids ...string) []outbox.ID {
	h.t.Helper()
	var ids []outbox.ID
	for _, u := range uids {
		out, err := h.s.Ingest(h.ctx, []*pg.Submission{{ContextID: h.by.Context, Queue: queue, Type: "T", UID: u,
			Hash: []byte(u), Data: json.RawMessage(`{}`),
			Callback: &outbox.Callback{URL: url, On: on}}}, false)
		h.must(err)
		h.must(out[0].Err)
		ids = append(ids, out[0].ID)
	}
	return ids
}

func TestACallbackIsToldTheEndSignedAndInOrderPerQueue(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("T", func(d *outbox.Dispatcher) { d.WorkerURL = remote.NoopURL })
	public, private, err := ed25519.GenerateKey(nil)
	h.must(err)
	mine, others := newReceiver(t), newReceiver(t)
	mine.public, others.public = public, public
	mine.set(func(n int, m told) (int, http.Header) {
		if n < 3 { // q-1 is not taken, and what is behind it stays behind it
			return 503, nil
		}
		return 200, nil
	})
	ids := h.postTo("q", mine.URL, nil, "q-1", "q-2", "q-3")
	ids = append(ids, h.postTo("q", others.URL, nil, "q-4")...)
	ids = append(ids, h.postTo("r", others.URL, []outbox.State{outbox.FAILED}, "r-unheard")...)
	h.engine("n1", func(c *parts) { c.SigningKey = private })
	h.await(ids, 20*time.Second, outbox.DONE)
	h.until("another endpoint does not wait for that one", func() bool { return len(others.list()) == 1 })
	h.until("three are told", func() bool { return len(mine.list()) >= 5 })
	mine.inOrder(map[string][]string{"q": {"q-1 DONE", "q-2 DONE", "q-3 DONE"}})
	others.inOrder(map[string][]string{"q": {"q-4 DONE"}})
	if m := mine.list(); m[0].ID != m[2].ID || m[0].UID != "q-1" || m[2].UID != "q-1" {
		t.Errorf("tried again as another: %+v", m[:3])
	}
}

func TestACallbackIsToldOfCancelsAndOfWhatADependencyFailed(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("T", func(d *outbox.Dispatcher) { d.WorkerURL = remote.NoopURL })
	r := newReceiver(t)
	not := time.Now().Add(time.Hour)
	first, err := h.s.Ingest(h.ctx, []*pg.Submission{{ContextID: h.by.Context, Queue: "a", Type: "T", UID: "first",
		Hash: []byte("first"), Data: json.RawMessage(`{}`), NotBefore: not,
		Callback: &outbox.Callback{URL: r.URL}}}, false)
	h.must(err)
	second, err := h.s.Ingest(h.ctx, []*pg.Submission{{ContextID: h.by.Context, Queue: "b", Type: "T", UID: "second",
		Hash: []byte("second"), Data: json.RawMessage(`{}`), DependsOn: []string{"first"},
		Callback: &outbox.Callback{URL: r.URL, On: []outbox.State{outbox.FAILED}}}}, false)
	h.must(err)
	h.must(second[0].Err)
	h.engine("n1", nil)
	_, err = h.s.Cancel(h.ctx, h.by, first[0].ID)
	h.must(err)
	h.until("both ends", func() bool { return len(r.list()) == 2 })
	r.inOrder(map[string][]string{"a": {"first CANCELLED"}, "b": {"second FAILED"}})
	again, err := h.s.Redrive(h.ctx, h.by, first[0].ID, pg.Redrive{})
	h.must(err)
	h.await([]outbox.ID{again.ID}, 20*time.Second, outbox.DONE)
	h.until("whom the redriven one tells", func() bool { return len(r.list()) == 3 })
	if m := r.list()[2]; m.State != "DONE" || m.UID == "first" {
		t.Errorf("%+v", m)
	}
}
