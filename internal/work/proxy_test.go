package work_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg/events"
	"github.com/postern-dev/postern/internal/remotetest"
)

// proxy stands before another server. While it is broken, it answers each call with a page of its own, and with the
// next status of its list.
type proxy struct {
	*httptest.Server
	broken atomic.Bool
	pages  atomic.Int64 // that it has answered with
}

// proxied are the statuses that a proxy answers with in place of what it stands before.
var proxied = []int{
	http.StatusNotFound,
	http.StatusForbidden,
	http.StatusTooManyRequests,
	http.StatusInternalServerError,
	http.StatusBadGateway,
	http.StatusUnauthorized,
	http.StatusOK,
}

func newProxy(t *testing.T, before string) *proxy {
	t.Helper()
	to, err := url.Parse(before)
	if err != nil {
		t.Fatal(err)
	}
	p, next := &proxy{}, httputil.NewSingleHostReverseProxy(to)
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.broken.Load() {
			next.ServeHTTP(w, r)
			return
		}
		status := proxied[int(p.pages.Add(1)-1)%len(proxied)]
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		fmt.Fprintf(w, "<!DOCTYPE html>\n<html><head><title>%d</title></head><body>nginx</body></html>\n", status)
	}))
	t.Cleanup(p.Close)
	return p
}

// S1.3, S1.11: a proxy before a source and before a tool answers with pages of its own for a while. Each page counts as
// a try, no event is Dead, the source goes on without an operator, and all is delivered.
func TestAProxysPagesEndNoEventAndStopNoSource(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.workflow(2, nil)
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch}, remotetest.Done("ok"))
	tool := h.tool("xyz.labs.add@1", func(string, int) (int, string) { return 200, `{"ok": {"sum": 1}}` })
	beforeTool := newProxy(t, tool.URL)
	d, err := leader.Meta{
		FQN:          "xyz.labs.add@1",
		URL:          beforeTool.URL,
		InputSchema:  json.RawMessage(anything),
		OutputSchema: json.RawMessage(okOrErr),
	}.Definition()
	h.must(err)
	_, err = h.s.Events.PutTool(h.ctx, h.by, d, events.ToolSettings{TTL: time.Minute}, 0)
	h.must(err)
	const each = 6
	log := newEventLog(t)
	log.n.Store(each)
	beforeLog := newProxy(t, log.URL)
	beforeTool.broken.Store(true)
	beforeLog.broken.Store(true)
	for i, v := range sources(log) {
		v.URL, v.PollEvery, v.MaxRetries = beforeLog.URL, 100*time.Millisecond, leader.DefaultMaxRetries
		if i == 0 {
			v.Name = "mended"
		}
		h.source(v)
	}
	h.engine("n", withTools(h))
	spare := 2 // tries that an event keeps while the proxy is broken
	sooner := func(what string, done func() bool) {
		t.Helper()
		h.until(what, func() bool {
			_, err := h.db.Pool.Exec(h.ctx, `UPDATE postern.source SET next_at = clock_timestamp()
				WHERE next_at > clock_timestamp()`)
			h.must(err)
			_, err = h.db.Pool.Exec(h.ctx, `UPDATE postern.event e SET not_before = clock_timestamp()
				FROM postern.source s
				WHERE s.source_id = e.source_id AND e.not_before > clock_timestamp()
					AND e.retried <= s.max_retries - $1`, spare)
			h.must(err)
			return done()
		})
	}
	sooner("the proxy has answered for the sources with each page", func() bool {
		return beforeLog.pages.Load() > 3*int64(len(proxied))
	})
	for _, name := range []string{"mended", "sui", "graphql"} {
		if v := h.state(name); v.State != "running" || v.Failures == 0 ||
			!strings.Contains(v.LastError, "no page of the source") {
			t.Errorf("%s behind a proxy: %s, %d failures: %q", name, v.State, v.Failures, v.LastError)
		}
	}
	beforeLog.broken.Store(false)
	sooner("the sources are read", func() bool {
		return len(h.stored("mended")) == each && len(h.stored("sui")) == each && len(h.stored("graphql")) == each
	})
	sooner("the proxy has answered as often as there are events and pages", func() bool {
		return beforeTool.pages.Load() >= int64(3*each*len(proxied))
	})
	beforeTool.broken.Store(false)
	spare = 0
	var ended []*events.Event
	sooner("the events have ended", func() bool {
		list, err := h.s.Events.Events(h.ctx, h.by.Context, events.EventFilter{Limit: 100})
		h.must(err)
		ended = nil
		for _, e := range list {
			if e.Status == leader.EventSuccessful || e.Status == leader.EventDead {
				ended = append(ended, e)
			}
		}
		return len(ended) == 3*each
	})
	for _, e := range ended {
		if e.Status != leader.EventSuccessful || e.Retried == 0 {
			t.Errorf("event %s is %s after %d tries: %s %s", e.Identity, e.Status, e.Retried, e.Code, e.Error)
		}
	}
}
