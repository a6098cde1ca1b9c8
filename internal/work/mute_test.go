package work_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
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
	const quoted = "/status answered 404 with an HTML page"
	var levers []string
	h.until("why quotes what was answered at /status", func() bool {
		why, err := h.s.Reads.Why(h.ctx, h.by.Context, ids[0])
		h.must(err)
		for _, b := range why.Blockers {
			if n := strings.Count(b.Detail, quoted); n > 1 {
				t.Fatalf("it is quoted %d times: %s", n, b.Detail)
			} else if n == 1 {
				for _, l := range b.Levers {
					levers = append(levers, l.String())
				}
				return true
			}
		}
		return false
	})
	if want := `PATCH /dispatchers/ASKED {"capabilities":["no_status"]}`; !slices.Contains(levers, want) {
		t.Errorf("the levers are %q, want %s", levers, want)
	}
	if tx, err := h.s.Transaction(h.ctx, h.by.Context, ids[0]); err != nil || tx.State != outbox.DISPATCHING {
		t.Errorf("%+v, %v", tx, err)
	}
	put("ASKED", "no_status")
	h.await(ids, 30*time.Second, outbox.UNRESOLVED)
}
