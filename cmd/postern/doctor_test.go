package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/devpg"
	"github.com/postern-dev/postern/internal/pg/doctor"
	"github.com/postern-dev/postern/internal/pgtest"
)

func TestTheDoctorLooksAtDatabaseApiAndWorkers(t *testing.T) {
	t.Parallel()
	_, url, api := developing(t)
	const gone = "127.0.0.1:1" // the kernel gives port 1 to no process that asks for any
	at := []string{"POSTERN_URL=" + api}
	postern(t, at, "api", "PUT", "/dispatchers/PAY", "-d", `{"worker_url": "http://`+gone+`"}`).want(t, 0)
	postern(t, at, "api", "PUT", "/dispatchers/NOOP", "-d", `{"worker_url": "noop:"}`).want(t, 0)

	for _, env := range [][]string{at, append(at, "DATABASE_URL="+url), {"DATABASE_URL=" + url}} {
		r := postern(t, env, "doctor", "-o", "json")
		var report struct {
			OK    bool
			Items []doctor.Finding
		}
		if err := json.Unmarshal([]byte(r.stdout), &report); err != nil || r.code != 1 || report.OK {
			t.Fatalf("%v: exit %d: %v\n%s%s", env, r.code, err, r.stdout, r.stderr)
		}
		said := map[string]doctor.Finding{}
		for _, f := range report.Items {
			said[f.Check] = f
		}
		if f := said["worker of PAY"]; f.State != doctor.Bad || !strings.Contains(f.Found, "cannot be reached") || f.Remedy == "" {
			t.Errorf("%v: %+v", env, f)
		}
		if said["stuck queues"].State != doctor.OK {
			t.Errorf("%v: %+v", env, said["stuck queues"])
		}
		if strings.Contains(strings.Join(env, " "), "DATABASE_URL") && (said["migrations"].State != doctor.OK || said["nodes"].State != doctor.OK || said["clock"].State != doctor.OK) {
			t.Errorf("%v: %+v", env, report)
		}
		if env[0] == at[0] && (said["API"].State != doctor.OK || said["API clock"].State != doctor.OK) {
			t.Errorf("%v: %+v", env, report)
		}
	}
	postern(t, database(url), "doctor", "-o", "table").want(t, 1, "bad   worker of PAY", "→ start it")
	postern(t, nil, "doctor", "--url", "http://127.0.0.1:1").want(t, 3, "start `postern serve`")
	postern(t, database("postgres://127.0.0.1:1/x"), "doctor").want(t, 3, "does not answer")
	postern(t, database(pgtest.Empty(t).URL), "doctor").want(t, 1, "postern migrate up")
}

// Doctor and ls name a transaction whose worker was called and cannot be asked, and it ends as they say.
func TestDoctorNamesWhatIsHeld(t *testing.T) {
	t.Parallel()
	_, url, api := developing(t)
	at, table := []string{"POSTERN_URL=" + api}, []string{"POSTERN_URL=" + api, "POSTERN_OUTPUT=table"}
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/dispatch/") {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(worker.Close)
	postern(t, at, "api", "PUT", "/dispatchers/PAY", "-d", `{"worker_url": "`+worker.URL+`"}`).want(t, 0)
	postern(t, at, "post", "PAY", "-q", "ada", "--uid", "lost").want(t, 0)
	held := func() bool { return strings.Contains(postern(t, table, "ls", "held=true").stdout, "lost") }
	for end := time.Now().Add(time.Minute); !held(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(postern(t, table, "ls").stdout)
		}
	}
	postern(t, table, "ls", "held=true").want(t, 0, "DISPATCHING held")
	postern(t, at, "doctor").want(t, 1, "held transactions", "lost of type PAY", "postern was-done ")
	postern(t, database(url), "doctor").want(t, 1, "held transactions", "1 of type PAY (context default)",
		"postern ls held=true type=PAY")
	postern(t, at, "was-done", "held=true", "--max", "9", "--reason", "the bank shows it").want(t, 0)
	postern(t, table, "ls", "state=DONE").want(t, 0, "lost")
}

// A worker that answers, but not what it is called for, is not well: doctor says so at once, also of a type with one
// queue, whose gate does not close.
func TestDoctorSaysThatCallsComeToNothing(t *testing.T) {
	t.Parallel()
	_, url, api := developing(t)
	at := []string{"POSTERN_URL=" + api, "POSTERN_OUTPUT=json"}
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/health") {
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(worker.Close)
	postern(t, at, "api", "PUT", "/dispatchers/PAY", "-d", `{"worker_url": "`+worker.URL+`"}`).want(t, 0)
	postern(t, at, "post", "PAY", "-q", "ada", "--uid", "one").want(t, 0)
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if why := postern(t, at, "why", "one").stdout; strings.Contains(why, "queue_blocked") {
			break
		} else if time.Now().After(end) {
			t.Fatal(why)
		}
	}
	for _, env := range [][]string{at, append(at, "DATABASE_URL="+url), append(database(url), "POSTERN_OUTPUT=json")} {
		var said string
		told := func() bool {
			r := postern(t, env, "doctor")
			said = r.stdout + r.stderr
			var report struct{ Items []doctor.Finding }
			if err := json.Unmarshal([]byte(r.stdout), &report); err != nil || r.code != 1 {
				return false
			}
			told := false
			for _, f := range report.Items {
				if f.Check == "worker of PAY" {
					if f.State == doctor.OK {
						return false
					}
					told = told || f.State == doctor.Bad && strings.Contains(f.Found, "http_404")
				}
			}
			return told
		}
		// a call that a busy machine did not answer in time closes the gate for a moment, with another reason
		for end := time.Now().Add(30 * time.Second); !told(); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%v: %s", env, said)
			}
		}
	}
}

// Two servers behind one URL take writes, as after a failover whose old primary has come back: doctor says what to do,
// and verify checks neither.
func TestTwoServersThatTakeWritesAreReported(t *testing.T) {
	t.Parallel()
	var hosts []string
	for range 2 {
		s, err := devpg.Start(t.Context(), devpg.Options{Ephemeral: true, Unsafe: true, BinDir: os.Getenv("POSTERN_PG_BIN")})
		if err != nil {
			t.Skipf("a server of its own: %v", err)
		}
		t.Cleanup(func() { s.Close() })
		onServer(t, s.URL, "CREATE ROLE two SUPERUSER LOGIN PASSWORD 'two'")
		u, err := url.Parse(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, u.Host)
	}
	both := database("postgres://two:two@" + strings.Join(hosts, ",") + "/postgres?sslmode=disable")
	postern(t, database("postgres://two:two@"+hosts[0]+"/postgres?sslmode=disable"), "migrate", "up").want(t, 0)
	r := postern(t, append(both, "POSTERN_OUTPUT=json"), "doctor")
	r.want(t, 1, "two servers take writes", hosts[0], hosts[1], "stop the other one", "pg_rewind")
	if strings.Contains(r.stdout, "start it") {
		t.Errorf("it says that a database that answers is to be started:\n%s", r.stdout)
	}
	postern(t, both, "verify").want(t, exitDisowned, "two servers take writes", "Fence off the wrong one", "next: `postern doctor`")
	postern(t, both, "quarantine", "status").want(t, exitDisowned, "two servers take writes")
}

func TestFindingsFit80Columns(t *testing.T) {
	long := strings.Repeat("abcdefghij ", 20)
	var b bytes.Buffer
	printFindings(&b, paper{width: 80}, []doctor.Finding{{Check: strings.ReplaceAll(long, " ", ""), State: doctor.Bad, Found: long, Remedy: long}, {Check: "fsync", State: doctor.OK, Found: "on"}})
	for l := range strings.Lines(b.String()) {
		alone := len(strings.Fields(l)) <= 2 // the state, and a name that is longer than the paper
		if n := utf8.RuneCountInString(strings.TrimSuffix(l, "\n")); n > 80 && !alone {
			t.Errorf("%d columns: %q", n, l)
		}
	}
}

func TestVerifySaysWhatIsNotTrue(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	postern(t, database(db.URL), "verify", "-o", "json").want(t, 0, `{"ok":true,"violations":[]}`)
	p := start(t, append(database(db.URL), "POSTERN_OUTPUT=table"), "verify", "--watch", "--every", "100ms")
	if l := p.line(); l != "all of it is true" {
		t.Errorf("it says %q", l)
	}
	c, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	if _, err := c.Exec(t.Context(), `INSERT INTO postern.idempotency (context_id, key, queue_id, seq, day, body_hash) VALUES (1, 'ghost', 12345, 1, '2026-01-01', '')`); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(); code != 1 || !strings.Contains(p.rest(), "ghost") {
		t.Errorf("watching ends with %d: %s", code, p.stderr())
	}
	postern(t, database(db.URL), "verify", "-o", "json").want(t, 1, `"ok":false`, "ghost", "next: ")
	postern(t, database("postgres://127.0.0.1:1/x"), "verify").want(t, 3)
	postern(t, nil, "verify").want(t, 2, "DATABASE_URL")
}

// An address that nodes may not call is told in advance: in the log of a node that starts, and by doctor, through the
// database or the API.
func TestTheDoctorNamesTheAddressesThatNoNodeMayCall(t *testing.T) {
	t.Parallel()
	db := database(pgtest.New(t).URL)
	const flag, bar = "--worker-allow-cidr 127.0.0.0/8", "no node may call it"
	_, at := serving(t, append(db, "POSTERN_AUTH=none", "POSTERN_WORKER_ALLOW_CIDR=127.0.0.0/8,10.1.0.0/16"), "serve")
	put := func(path, body string) result {
		t.Helper()
		return postern(t, []string{at}, "api", "PUT", path, "-d", body)
	}
	work := func(name string, env ...string) *process {
		t.Helper()
		return start(t, append(append(env, db...), "POSTERN_METRICS_LISTEN=off", "POSTERN_NODE_NAME="+name), "work")
	}
	// No node lives yet, so that what this process may call counts.
	put("/dispatchers/PAY", `{"worker_url": "http://127.0.0.1:1"}`).want(t, 0)
	put("/senders/ada", `{"pool": "p", "worker_url": "http://10.1.2.3"}`).want(t, 0)
	put("/dispatchers/BAD", `{"worker_url": "http://192.168.1.1"}`).want(t, 1, bar, "192.168.1.1/32")
	put("/domains/notes", `{"types": ["PAY"], "service_url": "http://10.1.2.4"}`).want(t, 0)
	one := work("one")
	for end := time.Now().Add(time.Minute); strings.Count(one.stderr(), "--worker-allow-cidr") < 3; {
		if time.Sleep(20 * time.Millisecond); time.Now().After(end) {
			t.Fatalf("the node warns of nothing: %s", one.stderr())
		}
	}
	for _, env := range [][]string{db, {at}} {
		postern(t, append(env, "POSTERN_OUTPUT=json"), "doctor").
			want(t, 1, "addresses", "dispatchers/PAY", flag, "POSTERN_WORKER_ALLOW_CIDR", "senders/ada", "10.1.2.3/32",
				"domains/notes", "10.1.2.4/32")
	}
	put("/dispatchers/PAY", `{"worker_url": "http://127.0.0.1:1"}`).want(t, 1, bar, flag)
	work("two", "POSTERN_WORKER_ALLOW_CIDR=127.0.0.0/8,10.0.0.0/8")
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		r := postern(t, append(db, "POSTERN_OUTPUT=json"), "doctor")
		if strings.Contains(r.stdout, "one may not call") && !strings.Contains(r.stdout, bar) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("of two nodes, one may: %s", r.stdout)
		}
	}
	put("/dispatchers/PAY", `{"worker_url": "http://127.0.0.1:1"}`).want(t, 0, "one may not call")
}

// A range that no node was started with is one cause: the doctor has one line for it, also when the calls to the worker
// come to nothing, through the database and the API.
func TestTheDoctorNamesAMissingRangeOnce(t *testing.T) {
	t.Parallel()
	worker := httptest.NewServer(http.NotFoundHandler())
	defer worker.Close()
	db := database(pgtest.New(t).URL)
	_, at := serving(t, append(db, "POSTERN_AUTH=none", "POSTERN_WORKER_ALLOW_CIDR=127.0.0.0/8"), "serve")
	postern(t, []string{at}, "api", "PUT", "/dispatchers/PAY", "-d", `{"worker_url": "`+worker.URL+`"}`).want(t, 0)
	start(t, append(db, "POSTERN_METRICS_LISTEN=off", "POSTERN_NODE_NAME=one"), "work")
	postern(t, []string{at}, "post", "PAY", "-q", "ada", "-d", "{}").want(t, 0)
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		r := postern(t, []string{at}, "api", "GET", "/dispatchers/PAY")
		if strings.Contains(r.stdout, `"gate"`) && strings.Contains(r.stdout, "--worker-allow-cidr") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("no gate closed: %s", r.stdout)
		}
	}
	for _, env := range [][]string{db, {at}, append([]string{at}, db...)} {
		r := postern(t, append(env, "POSTERN_OUTPUT=json"), "doctor")
		var said struct {
			Items []struct{ Check, State, Found, Remedy string }
		}
		if err := json.Unmarshal([]byte(r.stdout), &said); err != nil {
			t.Fatal(err, r.stdout, r.stderr)
		}
		var lines []string
		for _, f := range said.Items {
			if f.State != "ok" && strings.Contains(f.Check+f.Found+f.Remedy, "PAY") ||
				strings.Contains(f.Found+f.Remedy, "--worker-allow-cidr") {
				lines = append(lines, fmt.Sprintf("%+v", f))
			}
		}
		if len(lines) != 1 || !strings.Contains(lines[0], "--worker-allow-cidr 127.0.0.0/8") {
			t.Errorf("%d lines:\n%s", len(lines), strings.Join(lines, "\n"))
		}
	}
}
