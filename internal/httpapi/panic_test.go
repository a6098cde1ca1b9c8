package httpapi_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/postern-dev/postern/internal/httpapi"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/safe"
)

// wounded panics where it is to store a post.
type wounded struct {
	httpapi.Ingester
	panics atomic.Int32
}

func (w *wounded) Submit(ctx context.Context, sub *pg.Submission) (pg.Accepted, error) {
	if w.panics.Add(-1) >= 0 {
		var nothing *wounded
		return nothing.Ingester.Submit(ctx, sub)
	}
	return w.Ingester.Submit(ctx, sub)
}

// A handler that panics answers 500, is told of, and leaves the connection to the next request.
func TestAHandlerThatPanicsCostsOneRequest(t *testing.T) {
	var told atomic.Int32
	t.Cleanup(safe.Hear(func(p *safe.Panic) {
		if p.Place == "request" && strings.Contains(string(p.Stack), "wounded") {
			told.Add(1)
		}
	}))
	w := &wounded{}
	d := openDoor(t, func(c *httpapi.Config) { w.Ingester, c.Ingester = c.Ingester, w })
	d.want(201, "PUT", "/dispatchers/T", `{"worker_url": "noop:"}`)
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	defer client.CloseIdleConnections()
	post := func() (status int, kind string, reused bool) {
		ctx := httptrace.WithClientTrace(t.Context(),
			&httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
		r, err := http.NewRequestWithContext(ctx, "POST", d.url+"/transactions",
			strings.NewReader(`{"queue": "q", "type": "T", "data": {}}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "a")
		a, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		if _, err := io.Copy(io.Discard, a.Body); err != nil { // else the client gives the connection up
			t.Error(err)
		}
		return a.StatusCode, a.Header.Get("Content-Type"), reused
	}
	w.panics.Store(1)
	if status, kind, _ := post(); status != 500 || kind != "application/problem+json" {
		t.Error(status, kind)
	}
	if status, _, reused := post(); status != 201 || !reused {
		t.Error(status, reused)
	}
	if told.Load() != 1 {
		t.Errorf("told of %d panics", told.Load())
	}
}

// A request that waits is told although the hub panicked, and so is one whose own condition did.
func TestWhoWaitsIsToldAlthoughTheHubPanicked(t *testing.T) {
	t.Cleanup(safe.Hear(func(*safe.Panic) {}))
	d := openDoor(t)
	d.want(201, "PUT", "/dispatchers/T", `{"worker_url": "noop:"}`)
	id := d.want(201, "POST", "/transactions", `{"queue": "q", "type": "T", "data": {}}`).str("id")
	for _, place := range []string{"waits", "wait"} {
		var armed atomic.Int32
		armed.Store(3)
		stop := safe.Provoke(func(at string) {
			if at == place && armed.Add(-1) >= 0 {
				panic(place)
			}
		})
		if a := d.want(200, "GET", "/transactions/"+id+"?wait=20s&until=WAITING", ""); a.str("state") != "WAITING" {
			t.Errorf("%s: %s", place, a.raw)
		}
		stop()
		d.want(200, "GET", "/transactions/"+id+"?wait=20s&until=WAITING", "")
	}
}
