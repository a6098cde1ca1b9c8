package work_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
)

// A page under 404 at /status may be another's, so nothing ends of it, also where the dispatcher wants an end: it is
// asked again. A type that says itself that its worker has no /status ends what is not known.
func TestAPageIsNoWordThatThereIsNoStatus(t *testing.T) {
	h := newHouse(t)
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/dispatch/") {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("<!doctype html><title>404 Not Found</title>"))
	}))
	t.Cleanup(worker.Close)
	put := func(typ string, capabilities ...string) {
		h.dispatcher(typ, func(d *outbox.Dispatcher) {
			d.WorkerURL, d.Unknown, d.Capabilities = worker.URL, outbox.UnknownUnresolved, capabilities
		})
	}
	put("ASKED")
	put("MUTE", "no_status")
	h.engine("n", nil)
	ids := h.post("q", "ASKED", "a")
	h.await(h.post("r", "MUTE", "b"), 30*time.Second, outbox.UNRESOLVED)
	h.until("why quotes what was answered at /status", func() bool {
		why, err := h.s.Reads.Why(h.ctx, h.by.Context, ids[0])
		h.must(err)
		for _, b := range why.Blockers {
			if strings.Contains(b.Detail, "with an HTML page came to a question") {
				return strings.Contains(b.Detail, "no_status")
			}
		}
		return false
	})
	if tx, err := h.s.Transaction(h.ctx, h.by.Context, ids[0]); err != nil || tx.State != outbox.DISPATCHING {
		t.Errorf("%+v, %v", tx, err)
	}
}
