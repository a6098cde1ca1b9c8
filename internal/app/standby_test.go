package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/devpg"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/migrate"
)

// TestReadsGoOnWhileCommitsWaitForAStandby has more batches and settings wait for a standby that is away than a
// process has connections. Meanwhile every read is answered, within seconds on a machine that has time. Each write
// is answered within its deadline by a success or by an error that may be sent again; sent again when the standby is
// no longer wanted, each is there once.
func TestReadsGoOnWhileCommitsWaitForAStandby(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	a, database := onItsServer(t)
	commitsWaitFor := standbyOf(t, database)
	commitsWaitFor("one_that_is_away")

	const each = 14
	var writes sync.WaitGroup
	write := func(i int) (status int, body string) {
		if i < each {
			return send(t, http.MethodPut, fmt.Sprintf("%s/queues/set%d", a.URL(), i), `{}`)
		}
		return send(t, http.MethodPost, a.URL()+"/transactions:batch", fmt.Sprintf(
			`{"atomic": true, "items": [{"type": "THING", "queue": "q%d", "uid": "a%d"}, {"type": "THING", "queue": "q%d", "uid": "b%d"}]}`, i, i, i, i))
	}
	for i := range 2 * each {
		writes.Go(func() {
			began := time.Now()
			status, body := write(i)
			if took := time.Since(began); took > 50*time.Second || !mayRepeat(status, body) {
				t.Errorf("write %d was answered %d after %s: %s", i, status, took, body)
			}
		})
	}
	time.Sleep(time.Second) // they are on their way
	longest := time.Duration(0)
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		for _, path := range []string{"/queues", "/transactions", "/dispatchers/THING", "/readyz"} {
			began := time.Now()
			within, cancel := context.WithTimeout(ctx, 30*time.Second)
			req, _ := http.NewRequestWithContext(within, http.MethodGet, a.URL()+path, nil)
			res, err := http.DefaultClient.Do(req)
			if err != nil || res.StatusCode != http.StatusOK {
				t.Fatalf("GET %s while commits wait: %v %v", path, res, err)
			}
			res.Body.Close()
			cancel()
			longest = max(longest, time.Since(began))
		}
	}
	t.Logf("a read took %s at most", longest)
	commitsWaitFor("")
	writes.Wait()
	for i := range 2 * each {
		if status, body := write(i); status/100 != 2 {
			t.Errorf("write %d, sent again, was answered %d: %s", i, status, body)
		}
	}
	_, body := send(t, http.MethodGet, a.URL()+"/transactions?limit=100", "")
	var list struct{ Items []struct{ UID string } }
	if err := json.Unmarshal([]byte(body), &list); err != nil || len(list.Items) != 2*each {
		t.Errorf("of %d transactions there are %d: %v", 2*each, len(list.Items), err)
	}
}

// A commit whose wait for the standby was cancelled is told to be unknown, and so is the request when it is repeated:
// everybody sees its row, which is on no standby. It is answered once a commit behind it is on one.
func TestARepeatedRequestIsAnsweredOnceItsRowIsOnTheStandby(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	a, database := onItsServer(t)
	admin, err := pg.Connect(ctx, database, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	commitsWaitFor := standbyOf(t, database)
	posts := []struct{ path, body string }{
		{"/transactions", `{"type": "THING", "queue": "q", "uid": "one"}`},
		{"/transactions:batch", `{"items": [{"type": "THING", "queue": "q", "uid": "two"}]}`},
		{"/flows", `{"ref": 1, "jobs": [{"ref": 1, "script": "1", "script_type": "python"}]}`},
		{"/contexts/default/pause", `{}`},
	}
	first := `{"type": "THING", "queue": "q"}` // it makes what the later ones find
	if status, body := send(t, http.MethodPost, a.URL()+"/transactions", first); status != 201 {
		t.Fatal(status, body)
	}
	commitsWaitFor("one_that_is_away")
	time.Sleep(500 * time.Millisecond) // each session reads it when it is told, which nothing waits for
	for _, p := range posts {
		for try := range 3 { // the first commits, and each later one finds what it has committed
			var status atomic.Int64
			var body string
			done := make(chan struct{})
			go func() {
				defer close(done)
				n, text := send(t, http.MethodPost, a.URL()+p.path, p.body)
				body = text
				status.Store(int64(n))
			}()
			for cancelled := false; status.Load() == 0; time.Sleep(10 * time.Millisecond) {
				var n int
				if err := admin.QueryRow(ctx, `SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity
					WHERE wait_event = 'SyncRep'`).Scan(&n); err != nil {
					t.Fatal(err)
				}
				cancelled = cancelled || n > 0
			}
			<-done
			unknown := status.Load() == 503 && strings.Contains(body, "commit_unknown") ||
				status.Load() == 207 && strings.Contains(body, "commit_unknown")
			if !unknown {
				t.Errorf("try %d of POST %s was answered %d though nothing is on a standby: %s", try, p.path,
					status.Load(), body)
			}
		}
	}
	commitsWaitFor("")
	for _, p := range posts {
		if status, body := send(t, http.MethodPost, a.URL()+p.path, p.body); status != 200 {
			t.Errorf("POST %s is answered %d: %s", p.path, status, body)
		}
	}
}

// onItsServer starts a process that serves, on a PostgreSQL of its own, whose settings a test may change. There is a
// dispatcher of THING.
func onItsServer(t *testing.T) (a *app.App, database string) {
	t.Helper()
	server, err := devpg.Start(t.Context(), devpg.Options{Ephemeral: true, Unsafe: true,
		BinDir: os.Getenv("POSTERN_PG_BIN")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	if err := migrate.Up(t.Context(), server.URL, nil); err != nil {
		t.Fatal(err)
	}
	a, _, _ = running(t, server.URL, app.Role{Serve: true}, map[string]string{})
	status, body := send(t, http.MethodPut, a.URL()+"/dispatchers/THING", `{"worker_url": "noop:"}`)
	if status != http.StatusCreated {
		t.Fatalf("PUT of a dispatcher answers %d: %s", status, body)
	}
	return a, server.URL
}

// mayRepeat says whether an answer is a success, or an error whose request may be sent again as it is.
func mayRepeat(status int, body string) bool {
	var problem struct {
		Code      string
		Retryable bool
	}
	return status/100 == 2 || json.Unmarshal([]byte(body), &problem) == nil && status == http.StatusServiceUnavailable &&
		problem.Retryable && problem.Code != "database_unavailable"
}

// standbyOf returns how to name the standbys that each commit of a server waits for; "" for none.
func standbyOf(t *testing.T, database string) func(names string) {
	t.Helper()
	admin, err := pg.Connect(t.Context(), database, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	return func(names string) {
		t.Helper()
		for _, sql := range []string{`ALTER SYSTEM SET synchronous_standby_names = '` + names + `'`, `SELECT pg_reload_conf()`} {
			if _, err := admin.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
	}
}
