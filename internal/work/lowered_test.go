package work_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remotetest"
)

// S2.5 row 14: the worker wants more retries than Postern would make, and its number cannot be asked for when a delay
// is over. That lowers no limit: the transaction goes out again.
func TestALimitThatCannotBeAskedForIsNotLowered(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	to, err := url.Parse(h.fake.URL())
	h.must(err)
	var mute atomic.Bool
	next := httputil.NewSingleHostReverseProxy(to)
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if mute.Load() && strings.HasPrefix(r.URL.Path, "/max-retries/") {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(worker.Close)
	many := 100
	h.fake.SetMaxRetries(&many)
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, Attempt: 1}, remotetest.Fail(20203, "not now"))
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, Attempt: 2}, remotetest.Done("ok"))
	h.dispatcher("T", func(d *outbox.Dispatcher) {
		d.WorkerURL, d.Retry.Initial, d.Retry.Kind = worker.URL, outbox.Duration(time.Hour), "fixed"
	})
	stop := h.engine("first", nil)
	ids := h.post("q", "T", "a")
	h.await(ids, time.Minute, outbox.RETRY)
	stop()
	mute.Store(true)
	h.exec(`UPDATE postern.queue SET retries = 50 WHERE queue_id = $1`, ids[0].Queue)
	h.engine("second", nil)
	_, err = h.s.RetryNow(h.ctx, h.by, ids[0])
	h.must(err)
	h.await(ids, time.Minute, outbox.DONE)
}
