package work_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remotetest"
)

// A subscription to transaction.failed and the on-failure hook hear of a rejection, with class and words of the worker.
func TestARejectionIsHeardOfAsAFailure(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.dispatcher("T", nil)
	rejects := remotetest.FailWith(map[string]any{"class": "rejected", "code": "DECLINED", "message": "no funds"})
	h.fake.Script(dispatches, rejects)
	secret := []byte("0123456789abcdef0123456789abcdef")
	r := newReceiver(t, secret)
	failed := []outbox.Event{outbox.EventFailed}
	h.subscribe(outbox.Subscription{Name: "s", Kind: "webhook", URL: r.URL, Events: failed}, secret)
	h.engine("n1", nil)
	h.await(h.post("q", "T", "a"), 30*time.Second, outbox.FAILED)
	h.until("the subscriber heard of it", func() bool { return len(r.list()) > 0 })
	m := r.list()[0]
	if m.UID != "a" || m.State != "FAILED" || m.Event != "transaction.failed" ||
		!strings.Contains(strings.ReplaceAll(m.Raw, " ", ""), `"class":"rejected"`) ||
		!strings.Contains(m.Raw, "no funds") {
		t.Errorf("the subscriber was told %s", m.Raw)
	}
	call, err := h.fake.WaitCall(h.ctx, remotetest.Match{Op: remotetest.OpOnFailure, UID: "a"})
	h.must(err)
	if body := string(call.Body); !strings.Contains(body, "DECLINED") || !strings.Contains(body, `"class":"rejected"`) {
		t.Errorf("the hook was told %s", body)
	}
}
