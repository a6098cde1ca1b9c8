package httpapi_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/postern-dev/postern/internal/httpapi"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/remote"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// door is the real router over a real database, behind a real listener.
type door struct {
	events int
	t      *testing.T
	api    *httpapi.API
	store  *stores.Store
	url    string
	id     int32
	conns  *sync.Map // of its server, that are open
}

func newDoor(t *testing.T, change ...func(*httpapi.Config)) *door {
	t.Helper()
	t.Parallel()
	return openDoor(t, change...)
}

// openDoor is newDoor for a test that has one already.
func openDoor(t *testing.T, change ...func(*httpapi.Config)) *door {
	t.Helper()
	return doorTo(t, pgtest.New(t).Store(t, 8), change...)
}

// doorTo is a door to a store.
func doorTo(t *testing.T, s *stores.Store, change ...func(*httpapi.Config)) *door {
	t.Helper()
	c := httpapi.Config{Store: s, Ingester: pg.NewIngester(s.Store),
		Log:  slog.New(slog.NewTextHandler(t.Output(), nil)),
		Auth: "none", Version: "test",
		Tools: remote.New(remote.Config{AllowCIDR: prefixes("127.0.0.0/8", "::1/128"), Lookup: someNames})}
	for _, f := range change {
		f(&c)
	}
	d := &door{t: t, api: httpapi.New(c), store: s, id: s.Context("default").ID, conns: &sync.Map{}}
	server := httptest.NewUnstartedServer(nil)
	server.Config = d.api.Server()
	server.Config.ConnState = func(c net.Conn, s http.ConnState) {
		if d.conns.Store(c, s); s == http.StateClosed || s == http.StateHijacked {
			d.conns.Delete(c)
		}
	}
	server.Start()
	t.Cleanup(func() {
		server.Close()
		server.Config.Handler, d.api = nil, nil // its schemas have 10 MB, and a test that ended is kept by its parent
	})
	d.url = server.URL
	return d
}

// answer is a response, read.
type answer struct {
	status int
	header http.Header
	raw    string
	body   map[string]any
}

// call sends a request; headers come as "Name: value". It fails the test without ending it, so any goroutine may call.
func (d *door) call(method, path, body string, headers ...string) answer {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.url+path, strings.NewReader(body))
	if err != nil {
		d.t.Error(err)
		return answer{}
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		if k == "Host" {
			req.Host = v
		}
		req.Header.Set(k, v)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		d.t.Error(err)
		return answer{}
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		d.t.Error(err)
		return answer{}
	}
	a := answer{status: res.StatusCode, header: res.Header, raw: string(b)}
	if len(b) > 0 && strings.Contains(res.Header.Get("Content-Type"), "json") {
		if err := json.Unmarshal(b, &a.body); err != nil {
			d.t.Errorf("%s %s: %s: %s", method, path, err, b)
		}
	}
	if res.Header.Get("Postern-Request-Id") == "" {
		d.t.Errorf("%s %s: no Postern-Request-Id", method, path)
	}
	return a
}

// want calls and fails unless the status is the expected one.
func (d *door) want(status int, method, path, body string, headers ...string) answer {
	d.t.Helper()
	a := d.call(method, path, body, headers...)
	if a.status != status {
		d.t.Fatalf("%s %s answered %d, want %d: %s", method, path, a.status, status, a.raw)
	}
	return a
}

// refused calls and wants a problem of that status and code; it returns the problem.
func (d *door) refused(status int, code, method, path, body string, headers ...string) answer {
	d.t.Helper()
	a := d.want(status, method, path, body, headers...)
	if ct := a.header.Get("Content-Type"); ct != "application/problem+json" {
		d.t.Errorf("%s %s: Content-Type %q", method, path, ct)
	}
	if a.body["code"] != code || a.body["type"] != "urn:postern:problem:"+code || a.body["status"] != float64(status) ||
		a.body["request_id"] != a.header.Get("Postern-Request-Id") || a.body["title"] == "" || a.body["detail"] == "" {
		d.t.Errorf("%s %s: want %s: %s", method, path, code, a.raw)
	}
	return a
}

func (d *door) dispatcher(typ string) {
	d.t.Helper()
	d.want(201, "PUT", "/dispatchers/"+typ, `{"worker_url": "http://127.0.0.1:1/"}`)
}

func (a answer) str(key string) string { s, _ := a.body[key].(string); return s }
