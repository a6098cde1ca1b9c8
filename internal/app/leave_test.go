package app_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/pgtest"
)

// running starts a process with more settings, and waits until it is ready. stop asks it to stop; its end comes through
// ended.
func running(t *testing.T, database string, role app.Role, env map[string]string) (a *app.App, stop func(), ended <-chan error) {
	t.Helper()
	env["DATABASE_URL"], env["POSTERN_LISTEN"], env["POSTERN_METRICS_LISTEN"] = database, "127.0.0.1:0", "127.0.0.1:0"
	c, _, err := app.Load(app.Layers{Environ: env, Defaults: app.DevDefaults})
	if err != nil {
		t.Fatal(err)
	}
	if a, err = app.New(t.Context(), c, role, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- a.Run(ctx) }()
	t.Cleanup(stop)
	at := strings.TrimSuffix(a.MetricsURL(), "/metrics")
	for status, end := 0, time.Now().Add(time.Minute); status != http.StatusOK; time.Sleep(20 * time.Millisecond) {
		if status, _ = send(t, http.MethodGet, at+"/readyz", ""); time.Now().After(end) {
			t.Fatalf("the process did not become ready: %d", status)
		}
	}
	return a, stop, over
}

// For the drain delay a process that was told to stop answers everything, on the connections that it has and on new
// ones, and tells each client to go: it is not ready, closes each connection behind its answer, ends waits and streams,
// and claims nothing, so that what is posted to it is done by another process.
func TestAProcessThatStopsAnswersForItsDrainDelay(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	a, stop, ended := running(t, db.URL, app.Role{Serve: true, Work: true}, map[string]string{"POSTERN_DRAIN_DELAY": "10s"})
	if status, body := send(t, http.MethodPut, a.URL()+"/dispatchers/THING", `{"worker_url": "noop:"}`); status != http.StatusCreated {
		t.Fatalf("PUT of a dispatcher answers %d: %s", status, body)
	}
	if status, body := send(t, http.MethodPost, a.URL()+"/transactions?wait=30s", `{"type": "THING", "queue": "q"}`); status != 201 || !strings.Contains(body, `"DONE"`) {
		t.Fatalf("%d %s", status, body)
	}
	send(t, http.MethodPut, a.URL()+"/queues/held", `{}`)
	send(t, http.MethodPost, a.URL()+"/queues/held/pause", "")
	waits := make(chan string, 1)
	go func() {
		_, body := send(t, http.MethodPost, a.URL()+"/transactions?wait=60s", `{"type": "THING", "queue": "held", "uid": "waits"}`)
		waits <- body
	}()
	for status := 0; status != 200; {
		status, _ = send(t, http.MethodGet, a.URL()+"/transactions/by-uid/waits", "")
	}
	stream, err := http.Get(a.URL() + "/transactions:stream")
	if err != nil {
		t.Fatal(err)
	}
	kept := keep(t, a.URL())
	if res := kept.get(t, "/livez"); res.Close {
		t.Error("connections are closed before anybody stops")
	}

	began := time.Now()
	stop()
	if body := <-waits; !strings.Contains(body, `"WAITING"`) {
		t.Errorf("who waited got %s", body)
	}
	said, err := io.ReadAll(stream.Body)
	if err != nil || !strings.Contains(string(said), "\nretry: ") || !strings.Contains(string(said), "\nid: c") || !strings.HasSuffix(string(said), "\n\n") {
		t.Errorf("the stream ended with %v: %q", err, said)
	}
	if status, body := send(t, http.MethodGet, a.URL()+"/readyz", ""); status != 503 || strings.Contains(body, `"database"`) {
		t.Errorf("/readyz answers %d, and is not to ask the database first: %s", status, body)
	}
	if res := kept.get(t, "/queues"); res.StatusCode != 200 || !res.Close {
		t.Errorf("on a connection from before: %s %v", res.Status, res.Header)
	}
	if res := keep(t, a.URL()).get(t, "/livez"); res.StatusCode != 200 || !res.Close {
		t.Errorf("on a new connection: %s %v", res.Status, res.Header)
	}
	if again, err := http.Get(a.URL() + "/transactions:stream"); err != nil || again.StatusCode != 200 {
		t.Errorf("who comes back too soon is refused, and browsers do not come a third time: %v %v", again, err)
	} else if said, err := io.ReadAll(again.Body); err != nil || !strings.Contains(string(said), "\nretry: ") {
		t.Errorf("who comes back too soon gets %v: %q", err, said)
	}
	if status, body := send(t, http.MethodPost, a.URL()+"/transactions?wait=30s", `{"type": "THING", "queue": "q", "uid": "late"}`); status != 201 || !strings.Contains(body, `"WAITING"`) {
		t.Errorf("a post answers %d: %s", status, body)
	}
	select {
	case err := <-ended:
		t.Errorf("after %s it has ended: %v", time.Since(began), err)
	default:
	}
	other, _, _ := running(t, db.URL, app.Role{Serve: true, Work: true}, map[string]string{})
	if status, body := send(t, http.MethodGet, other.URL()+"/transactions/by-uid/late?wait=60s", ""); status != 200 || !strings.Contains(body, `"DONE"`) {
		t.Errorf("what was posted to it becomes %d %s", status, body)
	}
	if err := <-ended; err != nil || time.Since(began) < 10*time.Second {
		t.Errorf("it ended after %s with %v", time.Since(began), err)
	}
	if _, err := net.Dial("tcp", strings.TrimPrefix(a.URL(), "http://")); err == nil {
		t.Error("its port is still open")
	}
}

// kept is a connection that a test keeps.
type kept struct {
	net.Conn
	in *bufio.Reader
}

func keep(t *testing.T, url string) *kept {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &kept{c, bufio.NewReader(c)}
}

func (k *kept) get(t *testing.T, path string) *http.Response {
	t.Helper()
	if _, err := io.WriteString(k, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(k.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	return res
}

// The port of the metrics waits for no body, either.
func TestAProbeWithABodyThatDoesNotComeIsCutOff(t *testing.T) {
	t.Parallel()
	a, _, _ := running(t, pgtest.New(t).URL, app.Role{Serve: true}, map[string]string{})
	for _, path := range []string{"/livez", "/metrics", "/nowhere"} {
		k := keep(t, strings.TrimSuffix(a.MetricsURL(), "/metrics"))
		if _, err := io.WriteString(k, "POST "+path+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n1"); err != nil {
			t.Fatal(err)
		}
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			_ = k.SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := io.Copy(io.Discard, k.in); err != nil {
				t.Errorf("the connection is still open: %v", err)
			}
		})
	}
}

// A post whose commit is still under way when the grace is over is answered, too: whether it is committed is unknown.
func TestAPostThatOutlastsTheGraceIsUnknown(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	a, stop, ended := running(t, db.URL, app.Role{Serve: true}, map[string]string{"POSTERN_SHUTDOWN_GRACE": "1s"})
	send(t, http.MethodPut, a.URL()+"/dispatchers/THING", `{"worker_url": "noop:"}`)
	send(t, http.MethodPost, a.URL()+"/transactions", `{"type": "THING", "queue": "q"}`)
	for _, sql := range []string{
		`CREATE FUNCTION public.hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(15); RETURN NULL; END $$`,
		`CREATE CONSTRAINT TRIGGER hold AFTER UPDATE ON postern.queue DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.hold()`,
	} {
		if _, err := db.Pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	answers := make(chan string, 1)
	go func() {
		res, err := http.Post(a.URL()+"/transactions", "application/json", strings.NewReader(`{"type": "THING", "queue": "q", "uid": "held"}`))
		if err != nil {
			answers <- err.Error()
			return
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		answers <- fmt.Sprint(res.Status, string(body), err)
	}()
	for held := false; !held; time.Sleep(20 * time.Millisecond) {
		if err := db.Pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event = 'PgSleep')`).Scan(&held); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	if said := <-answers; !strings.HasPrefix(said, "503 ") || !strings.Contains(said, `"commit_unknown"`) || !strings.Contains(said, `"retryable":true`) {
		t.Error(said)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
