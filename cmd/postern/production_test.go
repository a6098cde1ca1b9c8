package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/pgtest"
)

func TestMigrateUpStatusDown(t *testing.T) {
	t.Parallel()
	db := database(pgtest.Empty(t).URL)
	postern(t, db, "migrate", "status", "-o", "table").want(t, 1, "00001_schemas", "missing", "postern migrate up")
	postern(t, db, "migrate", "up").want(t, 0, "00001_schemas")
	up := postern(t, db, "migrate", "status", "-o", "json")
	up.want(t, 0)
	var list struct{ Items []struct{ Name string } }
	if err := json.Unmarshal([]byte(up.stdout), &list); err != nil || len(list.Items) < 10 {
		t.Errorf("status as JSON is not JSON with every migration: %v\n%s", err, up.stdout)
	}
	postern(t, db, "migrate", "up").want(t, 0, "nothing to do: the database has every")
	postern(t, db, "migrate", "down").want(t, 2, "every transaction", "next: postern migrate down --yes")
	postern(t, db, "migrate", "status").want(t, 0)
	postern(t, db, "migrate", "down", "--yes").want(t, 0)
	postern(t, db, "migrate", "down", "--yes").want(t, 0, "nothing to do: the database has nothing")
	postern(t, db, "migrate", "status", "-o", "json").want(t, 1, `"applied_at":null,"unknown":false`)
	postern(t, db, "migrate", "status").want(t, 1)
	postern(t, db, "migrate").want(t, 2, "up, down or status")
}

func TestServeAndWorkRefuseADatabaseWhoseMigrationsDiffer(t *testing.T) {
	t.Parallel()
	db := database(pgtest.Empty(t).URL)
	for _, args := range [][]string{{"serve", "--listen", "127.0.0.1:0"}, {"serve", "--work", "--listen", "127.0.0.1:0"}, {"work"}} {
		postern(t, db, args...).want(t, 1, "run `postern migrate up`")
	}
}

func TestWithoutADatabaseTheSentenceSaysWhatToSet(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"serve"}, {"work"}, {"migrate", "up"}} {
		r := postern(t, nil, args...)
		r.want(t, 2, "DATABASE_URL is not set", "postern dev")
		if n := strings.Count(r.stderr, "DATABASE_URL is not set"); n != 1 || r.stdout != "" {
			t.Errorf("postern %s said it %d times, and on standard output %q", args, n, r.stdout)
		}
	}
}

func TestADatabaseThatDoesNotAnswerIsAnExitCodeOfItsOwn(t *testing.T) {
	t.Parallel()
	r := postern(t, database("postgres://somebody:hush@127.0.0.1:1/nothing"), "serve")
	r.want(t, 3, "does not answer")
	if strings.Contains(r.stderr, "hush") {
		t.Errorf("the password is shown: %s", r.stderr)
	}
}

func TestHowACommandIsCalledIsAnExitCodeOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"nonsense"}, {"serve", "--nonsense"}, {"serve", "now"}, {"config", "-o", "xml"}, {"worker"},
		{"config", "--lease-ttl", "soon"}, {"serve", "--auth", "none", "--listen", ":8080"}, {"nonsense", "-h"}, {"migrate", "sideways", "--help"}, {"help", "nonsense"}} {
		postern(t, nil, args...).want(t, 2)
	}
	postern(t, nil, "machines", "nonsense").want(t, 1, "want one of transaction, queue")
}

func TestConfigSaysWhereEachSettingComesFromAndShowsNoPassword(t *testing.T) {
	t.Parallel()
	r := postern(t, []string{"DATABASE_URL=postgres://a:hush@db/postern", "POSTERN_LEASE_TTL=7s"}, "config", "--listen", "127.0.0.1:9", "-o", "table")
	r.want(t, 0, "postgres://a:xxxxx@db/postern", "flag --listen", "7s", "default")
	if strings.Contains(r.stdout+r.stderr, "hush") {
		t.Errorf("the password is shown:\n%s", r.stdout)
	}
}

func TestServeAndWorkAreTwoProcessesThatStopWhenAsked(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	serve := start(t, append(database(db.URL), "POSTERN_AUTH=none"), "serve", "--listen", address)
	api := "http://" + address
	await(t, serve, api)
	work := start(t, database(db.URL), "work", "--types", "NOTHING,THING")

	call(t, http.MethodPut, api+"/dispatchers/THING", `{"worker_url": "noop:"}`, 201, nil)
	var tx struct{ ID, State string }
	call(t, http.MethodPost, api+"/transactions?wait=30s", `{"queue": "q", "type": "THING", "uid": "first", "data": {"a": 1}}`, 201, &tx)
	if tx.State != "DONE" {
		t.Errorf("posted through one process and worked by another, it is %s", tx.State)
	}
	for _, p := range []*process{serve, work} {
		p.signal(syscall.SIGTERM)
		if code := p.wait(); code != 0 {
			t.Errorf("%s ended with %d when asked to stop", p.cmd.Args, code)
		}
	}
}

// await waits until the API is ready.
func await(t *testing.T, p *process, api string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if res, err := http.Get(api + "/readyz"); err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-tick.C:
		case <-p.ended:
			t.Fatalf("postern ended before it was ready:\n%s", p.stderr())
		case <-t.Context().Done():
			t.Fatal("the API did not become ready")
		}
	}
}

// call sends one request and wants a status.
func call(t *testing.T, method, url, body string, status int, out any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != status {
		t.Fatalf("%s %s: %s, want %d\n%s", method, url, res.Status, status, b)
	}
	if out != nil {
		if err := json.Unmarshal(b, out); err != nil {
			t.Fatal(fmt.Errorf("%s %s: %w\n%s", method, url, err, b))
		}
	}
}

func TestTheContractThatIsPrintedIsTheOneThatIsCommitted(t *testing.T) {
	t.Parallel()
	committed, err := os.ReadFile("../../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if r := postern(t, nil, "openapi"); r.code != 0 || r.stdout != string(committed) {
		t.Errorf("postern openapi (exit code %d) is not api/openapi.yaml: run make generate and read the diff", r.code)
	}
}
