package main

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/demo"
	"github.com/postern-dev/postern/internal/pgtest"
)

// summary reads the line of a demo and checks it.
func summary(t *testing.T, line string) demo.Summary {
	t.Helper()
	var s demo.Summary
	if err := json.Unmarshal([]byte(line), &s); err != nil {
		t.Fatalf("the summary is not one line of JSON: %v\n%s", err, line)
	}
	if s.Unexpected != 0 || s.Transactions < 36 || s.Done+s.Failed != s.Transactions || s.Failed != len(s.Failures) || s.Seconds <= 0 || len(s.States) < 4 ||
		s.Ledger == nil || s.Ledger.Calls+s.Ledger.Transfers != s.Done || s.Ledger.Reorgs != 1 ||
		s.Ledger.Landed <= s.Ledger.Calls || // some failed in a block, and all were compared with what else was in it
		s.Ledger.Transfers != 5 || s.Ledger.Moved != 1234 || !s.Ledger.Balanced || s.Ledger.Dropped < 2 {
		t.Errorf("the summary is %+v", s)
	}
	return s
}

func TestTheDemoOfProcessorsEndsAsItsSamplesSay(t *testing.T) {
	t.Parallel()
	r := postern(t, anyPort, "demo", "--database-url", pgtest.New(t).URL, "--processor", "--once", "-o", "json")
	r.want(t, 0, "batches have ended")
	var s demo.Summary
	if err := json.Unmarshal([]byte(r.stdout), &s); err != nil {
		t.Fatal(err, r.stdout)
	}
	if s.Unexpected != 0 || s.Transactions != 27 || s.Done != 12 || s.Failed != len(s.Failures) || s.Done+s.Failed != s.Transactions || s.Retries < 9 ||
		len(s.States) != 3 || s.Ledger == nil || s.Ledger.Calls != 30 || !s.Ledger.Balanced {
		t.Errorf("the summary is %+v", s)
	}
}

func TestTheDemoOfTheLeaderEndsAsItsSamplesSay(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skipf("one of its tools is a script: %v", err)
	}
	r := postern(t, anyPort, "demo", "--leader", "--once", "--ephemeral", "-o", "json")
	r.want(t, 0, "events have come from the devnet")
	var s demo.Summary
	if err := json.Unmarshal([]byte(r.stdout), &s); err != nil {
		t.Fatal(err, r.stdout)
	}
	if s.Unexpected != 0 || s.Transactions != 11 || s.Done != 8 || s.Failed != 3 || len(s.Failures) != 3 || s.Retries != 2 ||
		len(s.States) != 2 || s.Ledger == nil || s.Ledger.Calls != 11 || !s.Ledger.Balanced {
		t.Errorf("the summary is %+v", s)
	}
}

// Each job of the flows ends as its sample says, whatever fails or is killed on the way, and the file that the scripts
// append to agrees with what is recorded.
func TestTheDemoOfFlowsEndsAsItsSamplesSay(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skipf("its jobs are scripts: %v", err)
	}
	r := postern(t, anyPort, "demo", "--flow", "--once", "--ephemeral", "-o", "json")
	r.want(t, 0, "a runner is killed in the middle of its job")
	var s demo.Summary
	if err := json.Unmarshal([]byte(r.stdout), &s); err != nil {
		t.Fatal(err, r.stdout)
	}
	if s.Unexpected != 0 || s.Transactions != 14 || s.Done != 10 || s.Failed != 4 || len(s.Failures) != 4 ||
		s.Retries != 4 || len(s.States) != 3 || s.Senders != 4 || s.Queues != 3 {
		t.Errorf("the summary is %+v", s)
	}
}

// Each intent of three installations has the receipt that its sample says, whatever is refused, reverted or killed on
// the way, and receipts, ledger and balances agree.
func TestTheDemoOfADomainEndsAsItsSamplesSay(t *testing.T) {
	t.Parallel()
	r := postern(t, anyPort, "demo", "--domain", "--once", "--ephemeral", "-o", "json")
	r.want(t, 0, "which coordinates, is killed with", "is started again")
	var s demo.Summary
	if err := json.Unmarshal([]byte(r.stdout), &s); err != nil {
		t.Fatal(err, r.stdout)
	}
	if s.Unexpected != 0 || s.Failed != 3 || s.Done+s.Failed != s.Transactions || s.Transactions < 14 ||
		s.Retries < 1 || s.Domain == nil || len(s.Domain.Receipts) != s.Transactions || len(s.Domain.Balances) != 4 ||
		len(s.Domain.Coordinators) < 2 || s.Domain.Killed == "" || !s.Ledger.Balanced || s.Ledger.Calls != s.Done {
		t.Errorf("the summary is %+v of %+v", s, s.Domain)
	}
}

func TestTheDemoEndsAsItsSamplesSayAndASecondOneServesUntilInterrupted(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t).URL
	first := postern(t, anyPort, "demo", "--database-url", db, "--once", "-o", "json")
	first.want(t, 0, "\nmeanwhile the log said")
	if strings.Contains(first.stderr, `{"`) {
		t.Errorf("the log is for people here:\n%s", first.stderr)
	}
	p := start(t, anyPort, "demo", "--database-url", db, "-o", "json")
	second := summary(t, p.line())
	if one := summary(t, first.stdout); one.Run == second.Run {
		t.Errorf("both runs are called %s", one.Run)
	}
	api := apiOf(t, p)
	var list struct{ Items []struct{ UID, State string } }
	call(t, http.MethodGet, api+"/transactions?state=FAILED&state=UNRESOLVED&limit=500", "", 200, &list)
	if len(list.Items) != 2*second.Failed {
		t.Errorf("after two runs %d are listed that did not end DONE, want %d", len(list.Items), 2*second.Failed)
	}
	_, tries, ok := strings.Cut(p.stderr(), "three things to try:\n")
	lines := strings.SplitN(tries, "\n", 4)
	if !ok || len(lines) < 4 {
		t.Fatalf("it names no three things to try:\n%s", p.stderr())
	}
	for i, want := range []string{"not_before", "all of it is true", "would change"} {
		if code, said := pasted(t, nil, strings.TrimSpace(lines[i])); code != 0 || !strings.Contains(said, want) {
			t.Errorf("%s: exit code %d, want %q in\n%s", lines[i], code, want, said)
		}
	}
	p.signal(os.Interrupt)
	if code := p.wait(); code != 0 {
		t.Errorf("Ctrl-C ended the demo with %d", code)
	}
}

func TestADemoThatIsKilledLeavesNoWorkerBehind(t *testing.T) {
	t.Parallel()
	p := start(t, anyPort, "demo", "--database-url", pgtest.New(t).URL)
	apiOf(t, p)
	children := regexp.MustCompile(`worker http://(\S+), devnet http://(\S+)`).FindStringSubmatch(p.stderr())[1:]
	p.signal(os.Kill)
	<-p.ended
	for deadline := time.Now().Add(20 * time.Second); len(children) > 0; {
		c, err := net.Dial("tcp", children[0])
		if err != nil {
			children = children[1:]
			continue
		}
		c.Close()
		if time.Now().After(deadline) {
			t.Fatal("the worker outlived the demo by 20 s")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// apiOf waits until a demo names its API.
func apiOf(t *testing.T, p *process) string {
	t.Helper()
	named := regexp.MustCompile(`API (http://\S+), worker`)
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if m := named.FindStringSubmatch(p.stderr()); m != nil {
			return m[1]
		}
	}
	t.Fatal("the demo named no API")
	return ""
}

// anyPort lets a process take any port for its API.
var anyPort = []string{"POSTERN_LISTEN=127.0.0.1:0"}

func TestDevIsADatabaseAnAPIAndASequencer(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	p := start(t, anyPort, "dev", "--database-url", db.URL)
	if l := p.line(); l != "DATABASE_URL="+db.URL {
		t.Errorf("the first line is %q", l)
	}
	api := p.line()
	await(t, p, api)
	call(t, http.MethodPut, api+"/dispatchers/THING", `{"worker_url": "noop:"}`, 201, nil)
	var tx struct{ State string }
	call(t, http.MethodPost, api+"/transactions?wait=30s", `{"queue": "q", "type": "THING", "data": {}}`, 201, &tx)
	if tx.State != "DONE" {
		t.Errorf("a transaction for the built-in worker is %s", tx.State)
	}
	var s struct {
		Key string `json:"public_key"`
	}
	call(t, http.MethodPut, api+"/subscriptions/s", `{"kind": "webhook", "url": "http://127.0.0.1:1/"}`, 201, &s)
	if !strings.HasPrefix(s.Key, "whpk_") || !strings.Contains(p.stderr(), "callbacks are signed by a key that ends with this process: "+s.Key) {
		t.Errorf("dev signs by %q, and says %s", s.Key, p.stderr())
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("dev ended with %d when asked to stop", code)
	}
}

func TestDevTellsAProgramWhereEverythingIs(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "dev", "--ephemeral", "--listen", "127.0.0.1:0", "-o", "json")
	var d struct {
		API      string `json:"api"`
		Database string `json:"database_url"`
		Ports    string `json:"worker_port_range"`
	}
	if err := json.Unmarshal([]byte(p.line()), &d); err != nil || !strings.HasPrefix(d.API, "http://127.0.0.1:") ||
		!strings.HasPrefix(d.Database, "postgres://") || d.Ports == "" {
		t.Errorf("dev -o json says %+v, %v", d, err)
	}
	await(t, p, d.API)
	p.signal(os.Interrupt)
	if code := p.wait(); code != 0 {
		t.Errorf("Ctrl-C ended dev with %d", code)
	}
	if rest := p.rest(); rest != "" {
		t.Errorf("dev -o json printed more than a line: %s", rest)
	}
}

func TestAnEphemeralDatabaseAndAConfiguredOneExcludeEachOther(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"dev", "demo"} {
		postern(t, nil, command, "--ephemeral", "--database-url", "postgres://127.0.0.1:1/x").want(t, 2, "leave out one")
	}
	postern(t, nil, "dev", "--reset", "--database-url", "postgres://127.0.0.1:1/x").want(t, 2, "names one of yours")
}

func TestATakenPortIsLeftAloneUnlessItWasAskedFor(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	db := pgtest.New(t).URL
	postern(t, nil, "dev", "--database-url", db, "--listen", l.Addr().String()).
		want(t, 1, "choose another address with --listen")

	if taken, err := net.Listen("tcp", "127.0.0.1:8080"); err == nil {
		defer taken.Close() // otherwise somebody else has it, which does as well
	}
	p := start(t, nil, "dev", "--database-url", db, "-o", "json")
	if line := p.line(); strings.Contains(line, ":8080") {
		t.Errorf("the port is taken, and dev says %s", line)
	}
	p.signal(os.Interrupt)
	p.wait()
	if !strings.Contains(p.stderr(), "127.0.0.1:8080 is in use: the API listens at http://127.0.0.1:") {
		t.Errorf("nothing is said about the port that is in use:\n%s", p.stderr())
	}
}

func TestCtrlCInTheMiddleOfADemoIsNoFailureUnlessOnceWasAskedFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		code int
	}{{[]string{"demo"}, 0}, {[]string{"demo", "--once"}, 1}} {
		p := start(t, anyPort, append(c.args, "--database-url", pgtest.New(t).URL)...)
		apiOf(t, p)
		p.signal(os.Interrupt)
		if code := p.wait(); code != c.code || !strings.Contains(p.stderr(), "stopped before all samples had ended") {
			t.Errorf("postern %s ended with %d, want %d", strings.Join(c.args, " "), code, c.code)
		}
	}
}
