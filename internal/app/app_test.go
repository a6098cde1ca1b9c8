package app_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// build makes a process on a database, at any port.
func build(t *testing.T, database string, role app.Role) (*app.App, error) {
	t.Helper()
	environ := map[string]string{"DATABASE_URL": pgtest.Few(database), "POSTERN_LISTEN": "127.0.0.1:0"}
	c, _, err := app.Load(app.Layers{Environ: environ, Defaults: app.DevDefaults})
	if err != nil {
		t.Fatal(err)
	}
	return app.New(t.Context(), c, role, slog.New(slog.DiscardHandler))
}

// send makes one request and returns status and body.
func send(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(b)
}

func TestAProcessStartsWholeAndStopsWhenAsked(t *testing.T) {
	t.Parallel()
	a, err := build(t, pgtest.New(t).URL, app.Role{Serve: true, Work: true, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	for status, body := 0, ""; status != http.StatusOK; {
		if status, body = send(t, http.MethodGet, a.URL()+"/readyz", ""); status != http.StatusOK && status != http.StatusServiceUnavailable {
			t.Fatalf("/readyz answers %d: %s", status, body)
		}
	}
	if status, body := send(t, http.MethodPut, a.URL()+"/dispatchers/THING", `{"worker_url": "noop:"}`); status != http.StatusCreated {
		t.Fatalf("PUT of a dispatcher answers %d: %s", status, body)
	}
	if status, body := send(t, http.MethodPost, a.URL()+"/transactions?wait=30s", `{"type": "THING", "queue": "q", "data": {}}`); status != http.StatusCreated || !strings.Contains(body, `"DONE"`) {
		t.Errorf("a post that waits for its end answers %d: %s", status, body)
	}

	// a post that waits for an end that does not come does not hold up the stop
	if status, body := send(t, http.MethodPost, a.URL()+"/queues/q/pause", ""); status != http.StatusOK {
		t.Fatalf("pausing a queue answers %d: %s", status, body)
	}
	waits := make(chan string, 1)
	go func() {
		_, body := send(t, http.MethodPost, a.URL()+"/transactions?wait=60s", `{"type": "THING", "queue": "q", "uid": "late", "data": {}}`)
		waits <- body
	}()
	for status := 0; status != http.StatusOK; {
		status, _ = send(t, http.MethodGet, a.URL()+"/transactions/by-uid/late", "")
	}
	began := time.Now()
	stop()
	if err := <-ended; err != nil {
		t.Errorf("asked to stop, it ended with %v", err)
	}
	if d := time.Since(began); d > 60*time.Second {
		t.Errorf("it took %s to stop", d)
	}
	if body := <-waits; !strings.Contains(body, `"WAITING"`) {
		t.Errorf("who waited got %s", body)
	}
	a.Close() // as often as one likes
}

func TestADatabaseThatDoesNotFitIsRefusedBeforeAnythingListens(t *testing.T) {
	t.Parallel()
	a, err := build(t, pgtest.Empty(t).URL, app.Role{Serve: true})
	if a != nil || fault.CodeOf(err) != "migrations_differ" {
		t.Errorf("on an empty database: %v, %v", a, err)
	}
	if _, err = build(t, "postgres://nobody@127.0.0.1:1/nothing", app.Role{Work: true}); fault.CodeOf(err) != "database_unavailable" {
		t.Errorf("without a database: %v", err)
	}
	if _, err = build(t, "postgres://[", app.Role{Work: true}); fault.CodeOf(err) != "bad_setting" {
		t.Errorf("with a URL that is none: %v", err)
	}
}
