package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// One seed prints one schedule, and another seed another.
func TestASeedFixesTheSchedule(t *testing.T) {
	drawn := func(seed uint64) string {
		var b bytes.Buffer
		all, err := chosen("", "")
		if err != nil {
			t.Fatal(err)
		}
		print(&b, plan(seed, 120, 2*time.Second, all))
		return b.String()
	}
	if a, b := drawn(1), drawn(1); a != b || strings.Count(a, "\n") < 30 {
		t.Fatalf("one seed, two schedules:\n%s\n%s", a, b)
	}
	if drawn(1) == drawn(2) {
		t.Error("two seeds have one schedule")
	}
}

// Each kind of fault happens within the seeds of a few minutes.
func TestEachFaultIsDrawn(t *testing.T) {
	all, _ := chosen("", "")
	seen := map[string]bool{}
	for seed := range uint64(20) {
		for _, p := range plan(seed, 120, 2*time.Second, all) {
			seen[p.kind.name] = true
		}
	}
	for _, f := range all {
		if !seen[f.name] {
			t.Errorf("%s is never drawn", f.name)
		}
		if f.do == nil && f.skip == nil || f.what == "" {
			t.Errorf("%s does nothing, or does not say what it does", f.name)
		}
	}
}

func good() *evidence {
	at := time.Now()
	return &evidence{
		posts: []*post{{UID: "a", ID: "1", Queue: "q", N: 1, Acked: true, Told: true,
			Clash: &clash{409, "idempotency_conflict", "1"}}, {UID: "b", ID: "2", Queue: "q", N: 2, Acked: true, Told: true},
			{UID: "f", ID: "3", N: 3, Acked: true, Fails: true}},
		rows: []row{{id: "1", uid: "a", queue: "q", state: "DONE", position: 1, n: 1, ended: at},
			{id: "2", uid: "b", queue: "q", state: "DONE", position: 2, n: 2, ended: at.Add(4)},
			{id: "3", uid: "f", state: "FAILED", position: 1, n: 3}},
		calls: []call{
			{At: at, Token: "1.1", UID: "a", Queue: "q", Did: "done", Fence: 5},
			{At: at.Add(1), Did: "told", UID: "a", ID: "1", Queue: "q", Position: 1, Token: "1.done", Event: "transaction.done",
				State: "DONE"},
			{At: at.Add(2), Token: "1.1", Did: "asked", Said: "unknown"},
			{At: at.Add(3), Token: "1.1", UID: "a", Queue: "q", Did: "again", Fence: 6},
			{At: at.Add(4), Token: "2.1", UID: "b", Queue: "q", Did: "done", Fence: 6},
			{At: at.Add(5), Token: "3.1", UID: "f", Did: "failed", Attempt: 1, Fence: 1},
			{At: at.Add(6), Token: "3.2", UID: "f", Did: "failed", Attempt: 2, Fence: 1},
			{At: at.Add(7), Did: "told", UID: "b", ID: "2", Queue: "q", Position: 2, Token: "2.done", Event: "transaction.done",
				State: "DONE"},
		},
	}
}

// The checker finds each violation that it looks for, and none where all is well.
func TestTheCheckerFindsWhatIsWrong(t *testing.T) {
	look := func(e *evidence) map[string]int {
		found := map[string]int{}
		e.check(func(invariant, _ string, _ ...any) { found[invariant]++ })
		return found
	}
	if found := look(good()); len(found) > 0 {
		t.Fatalf("nothing is wrong, and it finds %v", found)
	}
	for _, c := range []struct {
		invariant string
		spoil     func(*evidence)
	}{
		{"nothing acknowledged is lost", func(e *evidence) { e.posts = append(e.posts, &post{UID: "c", Acked: true}) }},
		{"one transaction per key", func(e *evidence) {
			e.rows = append(e.rows, row{uid: "a", state: "DONE", queue: "q", position: 3, id: "1", n: 1})
		}},
		{"nothing acknowledged is lost", func(e *evidence) { e.posts[0].ID = "9" }},
		{"a transaction is what was posted", func(e *evidence) { e.posts[0].N = 9 }},
		{"every answer is a success or retryable", func(e *evidence) { e.posts[0].Bad = "500" }},
		{"unknown is never no", func(e *evidence) { e.posts[0].No = "it was stored" }},
		{"every post is answered in the end", func(e *evidence) { e.posts[0].Acked = false }},
		{"a key is one body's", func(e *evidence) { e.posts[0].Clash.Status = 201 }},
		{"a key is one body's", func(e *evidence) { e.posts[0].Clash.Code = "conflict" }},
		{"a key is one body's", func(e *evidence) { e.posts[0].Clash.ID = "2" }},
		{"it ends as its worker says", func(e *evidence) { e.rows[0].state = "FAILED" }},
		{"a token is one transaction's", func(e *evidence) { e.calls[3].UID = "b" }},
		{"a token is one sender's", func(e *evidence) { e.calls[3].Sender = "s" }},
		{"terminal is final", func(e *evidence) { e.calls[6].Attempt = 3 }},
		{"asked before it is sent again", func(e *evidence) { e.calls[2].Token = "0" }},
		{"asked before it is sent again", func(e *evidence) { e.calls[2].Said = "included" }},
		{"executed once", func(e *evidence) { e.calls[4].UID = "a" }},
		{"what is DONE was executed", func(e *evidence) { e.calls[4].Did = "nothing" }},
		{"order of a queue", func(e *evidence) { e.calls[0], e.calls[4] = e.calls[4], e.calls[0] }},
		{"what depends on another one waits for it", func(e *evidence) { e.posts[0].On = "b" }},
		{"what depends on another one waits for it", func(e *evidence) {
			e.posts[1].On, e.calls[0].Done = "a", e.calls[5].At
		}},
		{"what depends on another one waits for it", func(e *evidence) { e.posts[1].On = "f" }},
		{"fences never fall", func(e *evidence) { e.calls[4].Fence = 4 }},
		{"nothing leaves a store that lost something", func(e *evidence) {
			at := e.calls[0].At.Add(-time.Hour)
			e.quiet = []quiet{{restored: at, span: span{at, e.calls[0].At.Add(time.Hour)}}}
		}},
		{"nothing leaves a store that lost something", func(e *evidence) { // nor does what it leases before that shows
			e.quiet = []quiet{restoredAt(e.calls[4].At.Add(-1))}
			e.calls[4].Fence = e.calls[4].At.UnixMilli()
		}},
		{"a sender serves one queue at a time", func(e *evidence) {
			e.calls[0].Sender, e.calls[0].Done = "s", e.calls[4].At.Add(1)
			e.calls[4].Sender, e.calls[4].Queue = "s", "r"
		}},
		{"one of a queue is under way", func(e *evidence) { e.calls[0].Done = e.calls[4].At.Add(1) }},
		{"callbacks arrive", func(e *evidence) { e.calls[1].UID = "b" }},
		{"nothing leaves a store that lost something", func(e *evidence) { // a callback does not, either
			e.calls[1].At = e.calls[0].At.Add(time.Hour)
			at := e.calls[1].At
			e.quiet = []quiet{{restored: at.Add(-2), span: span{at.Add(-1), at.Add(1)}}}
		}},
		{"a nonce is kept as it was told", func(e *evidence) { e.calls[4].Nonce, e.calls[4].Sender = 1, "s" }},
		{"a nonce is kept as it was told", func(e *evidence) { e.nonces = map[use]bool{{"b", "s", 0, "1"}: true} }},
		{"a nonce is kept as it was told", func(e *evidence) { // in that of another attempt
			e.calls[4].Nonce, e.calls[4].Sender, e.nonces = 1, "s", map[use]bool{{"b", "s", 1, "1"}: true}
		}},
		{"a nonce is kept as it was told", func(e *evidence) { // in an attempt alone
			e.calls[4].Nonce, e.calls[4].Sender, e.nonces = 1, "s", map[use]bool{{"b", "s", 0, "1"}: false}
		}},
		{"a nonce is kept as it was told", func(e *evidence) { // of no sender, and nothing was restored
			e.calls[4].Nonce, e.calls[4].Sender, e.nonces = 1, "s", map[use]bool{{"b", "", 0, "1"}: true}
		}},
		{"positions follow acceptance", func(e *evidence) { accepted(e, false, false) }},
		{"positions follow acceptance", func(e *evidence) { accepted(e, true, true) }},
		{"positions follow acceptance", func(e *evidence) { accepted(e, false, true) }},
	} {
		e := good()
		if c.spoil(e); look(e)[c.invariant] == 0 {
			t.Errorf("it does not find that %q is violated: %v", c.invariant, look(e))
		}
	}
}

// A dependent that is called behind what it needs is right.
func TestADependentThatWaitedIsRight(t *testing.T) {
	e := good()
	e.posts[1].On, e.calls[0].Done = "a", e.calls[0].At.Add(1)
	e.check(func(invariant, format string, args ...any) {
		t.Errorf("%s: "+format, append([]any{invariant}, args...)...)
	})
}

// A call that something before the worker answers is in its log, executed or not. One that a page with 200 answers is
// not executed.
func TestACallThatSomethingElseAnswersIsLogged(t *testing.T) {
	w, err := newWorker(filepath.Join(t.TempDir(), "worker.jsonl"), workerSettings{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.listener.Close()
	seen := map[string]int{}
	for i := range 60 {
		mode := []string{"html", "redirect", "away"}[i%3]
		w.behave(mode)
		body := fmt.Sprintf(`{"txData":{"uid":"u%d","data":{"N":1}},`+
			`"postern":{"token":"t%d","attempt":2,"fence":1}}`, i, i)
		noRedirect := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}
		status := 0
		if a, err := noRedirect.Post(w.url()+"/dispatch/PAY", "application/json", strings.NewReader(body)); err == nil {
			status = a.StatusCode
			a.Body.Close()
		}
		c := w.calls[len(w.calls)-1]
		if len(w.calls) != i+1 || c.Token != fmt.Sprint("t", i) || c.Mode != mode {
			t.Fatalf("%d calls, the last %+v", len(w.calls), c)
		}
		seen[fmt.Sprintf("%s %d executed %t", mode, status, c.executed())]++
	}
	for _, want := range []string{"html 200 executed false", "html 502 executed true", "html 502 executed false",
		"redirect 302 executed true", "redirect 302 executed false", "away 0 executed true", "away 0 executed false"} {
		if seen[want] == 0 {
			t.Errorf("never: %s, but %v", want, seen)
		}
	}
	if len(seen) != 7 {
		t.Errorf("%v", seen)
	}
}

// restoredAt is a restore that is noticed an hour later.
func restoredAt(at time.Time) quiet {
	return quiet{restored: at, span: span{at.Add(time.Hour), at.Add(2 * time.Hour)}}
}

// Behind a restore a lease of the time before may begin a call until the processes have noticed, and one of the
// restored store may where its process had nothing to miss.
func TestTheCheckerKnowsWhatARestoreExcuses(t *testing.T) {
	at := time.Now()
	since := map[string]time.Time{"work-1": at.Add(time.Minute)}
	for _, c := range []struct {
		name           string
		at             time.Duration
		fence          time.Duration
		by             []string
		unaware        map[string]time.Time
		wrong, excused bool
	}{
		{"before it", -time.Second, time.Second, nil, nil, false, false},
		{"an old lease", time.Second, -time.Second, nil, nil, false, false},
		{"an old lease, too late", 90 * time.Minute, -time.Second, nil, nil, true, false},
		{"a new lease", time.Second, time.Second, []string{"work-1"}, nil, true, false},
		{"of a process that began anew", 2 * time.Minute, time.Second, []string{"work-1"}, since, false, true},
		{"before it began", time.Second, time.Second, []string{"work-1"}, since, true, false},
		{"of another", 2 * time.Minute, time.Second, []string{"work-2"}, since, true, false},
		{"of anyone", 2 * time.Minute, time.Second, nil, since, false, true},
		{"of anyone, once noticed", 90 * time.Minute, time.Second, nil, since, true, false},
		{"once released", 3 * time.Hour, time.Second, nil, nil, false, false},
	} {
		q := restoredAt(at)
		q.unaware = c.unaware
		wrong, excused := q.wrong(at.Add(c.at), at.Add(c.fence).UnixMilli(), c.by)
		if wrong != c.wrong || excused != c.excused {
			t.Errorf("%s: wrong %t, excused %t", c.name, wrong, excused)
		}
	}
}

// accepted has b acknowledged before a, which comes first, is sent. Each is by SQL or over HTTP.
func accepted(e *evidence, b, a bool) {
	at := time.Now()
	e.posts[1].AckedAt, e.posts[1].Staged = at, b
	e.posts[0].At, e.posts[0].AckedAt, e.posts[0].Staged = at.Add(1), at.Add(2), a
}

// A post over HTTP may overtake one by SQL. What is posted again behind a restore, and what was not yet acknowledged,
// may come anywhere.
func TestTheCheckerKnowsWhatMayOvertake(t *testing.T) {
	for name, spoil := range map[string]func(*evidence){
		"one by SQL":             func(e *evidence) { accepted(e, true, false) },
		"again behind a restore": func(e *evidence) { accepted(e, false, false); e.posts[1].Repeated = true },
		"acknowledged behind it": func(e *evidence) { accepted(e, false, false); e.posts[1].AckedAt = e.posts[0].At.Add(1) },
		"never acknowledged":     func(e *evidence) { accepted(e, false, false); e.posts[1].Acked = false },
	} {
		e := good()
		spoil(e)
		byUID := map[string]row{}
		for _, r := range e.rows {
			byUID[r.uid] = r
		}
		e.checkAccepted(byUID, func(invariant, format string, args ...any) {
			t.Errorf("%s: it finds %q: "+format, append([]any{name, invariant}, args...)...)
		})
	}
}

// A nonce is missed neither of what is posted again behind a restore, nor of what ended by an operator's word, nor of what
// has not ended.
func TestTheCheckerKnowsWhichNonceMayBeMissing(t *testing.T) {
	for name, excuse := range map[string]func(*evidence){
		"in its outcome":         func(e *evidence) { e.nonces = map[use]bool{{"b", "s", 0, "1"}: true} },
		"again behind a restore": func(e *evidence) { e.posts[1].Repeated = true },
		"its call was taken back": func(e *evidence) {
			e.nonces = map[use]bool{{"b", "", 0, "1"}: true}
			e.quiet = []quiet{{restored: e.calls[4].At.Add(1)}}
		},
		"an operator's word": func(e *evidence) { e.said = map[string]bool{"b": true} },
		"not ended":          func(e *evidence) { e.rows[1].state = "REVISION" },
	} {
		e := good()
		e.calls[4].Nonce, e.calls[4].Sender = 1, "s"
		excuse(e)
		byUID := map[string]row{}
		for _, r := range e.rows {
			byUID[r.uid] = r
		}
		e.checkNonces(byUID, func(invariant, _ string, _ ...any) { t.Errorf("%s: it finds %q", name, invariant) })
	}
}

// A process that wakes up may have been about to call a few workers, and no more.
func TestTheCheckerCountsWhatIsLate(t *testing.T) {
	for n, want := range map[int]int{lateAtMost: 0, lateAtMost + 1: 1} {
		at := time.Now()
		e := &evidence{late: []thaw{{"work-1", span{at, at.Add(time.Hour)}}}}
		for i := range n {
			q := fmt.Sprint("q", i)
			e.calls = append(e.calls, call{At: at.Add(1), Token: q, UID: q, Queue: q, Fence: 2, Did: "done"},
				call{At: at.Add(2), Token: q + "'", UID: q, Queue: q, Fence: 1, Did: "stale"})
		}
		found := 0
		say := func(string, string, ...any) { found++ }
		e.checkFences(say)
		say = func(invariant, _ string, _ ...any) {
			if found++; invariant != "what wakes up calls no more than it had begun" {
				t.Error(invariant)
			}
		}
		if all, most := e.checkLate(say); found != want || all != n || most != n {
			t.Errorf("%d late calls: it finds %d, and counts %d, at most %d", n, found, all, most)
		}
	}
}

// A process that was frozen may call late, and a call that was given up is no sender's any more.
func TestTheCheckerKnowsWhatMayBeLate(t *testing.T) {
	for name, spoil := range map[string]func(*evidence){
		"an old fence": func(e *evidence) { e.calls[4].Fence = 4 },
		"a sender's call": func(e *evidence) {
			e.calls[0].Sender, e.calls[0].Done = "s", e.calls[4].At.Add(1)
			e.calls[4].Sender, e.calls[4].Queue = "s", "r"
		},
	} {
		for _, one := range []struct {
			from, to int      // the calls around which the process goes on
			callers  []string // by the rows
			late     bool
			counted  int // calls that were late
		}{
			{3, 5, nil, true, 1},
			{3, 5, []string{"work-1"}, true, 1},
			{3, 5, []string{"work-2", "work-1"}, true, 1},
			{3, 5, []string{"work-2"}, false, 0},
			{5, 6, []string{"work-1"}, false, 0}, // it stands still
			{0, 4, []string{"work-1"}, false, 0}, // and had time to see that its lease has ended
		} {
			e := good()
			spoil(e)
			e.callers = map[lease][]string{{"b", e.calls[4].Fence}: one.callers}
			e.late = []thaw{{"work-1", span{e.calls[one.from].At, e.calls[one.to].At}}}
			found := 0
			say := func(string, string, ...any) { found++ }
			e.checkFences(say)
			e.checkSenders(say)
			if n, _ := e.checkLate(say); (found == 0) != one.late || n != one.counted {
				t.Errorf("%s, %+v: it finds %d, and counts %d", name, one, found, n)
			}
		}
	}
	for name, spoil := range map[string]func(*call){
		"a lie":  func(c *call) { c.Mode = "lie" },
		"a hang": func(c *call) { c.Done = c.At.Add(givenUp) },
	} {
		e := good()
		e.calls[0].Sender, e.calls[0].Done, e.calls[4].Sender = "s", e.calls[4].At.Add(1), "s"
		spoil(&e.calls[0])
		e.checkSenders(func(invariant, _ string, _ ...any) { t.Errorf("%s: it finds %q", name, invariant) })
	}
}

// The proxy recognises what commits: COMMIT, as text, prepared or in a batch, and a batch of writes without BEGIN.
func TestTheProxySeesCommits(t *testing.T) {
	message := func(typ byte, body string) []byte {
		n := len(body) + 4
		return append([]byte{typ, 0, byte(n >> 16), byte(n >> 8), byte(n)}, body...)
	}
	parse := func(name, sql string) []byte { return message('P', name+"\x00"+sql+"\x00\x00\x00") }
	bind := func(name string) []byte { return message('B', "\x00"+name+"\x00\x00\x00\x00\x00\x00\x00") }
	sync := message('S', "")
	for _, c := range []struct {
		name  string
		sends [][]byte
		want  bool
	}{
		{"a read", [][]byte{parse("a", "SELECT 1"), bind("a"), sync}, false},
		{"a write", [][]byte{parse("a", "INSERT INTO x"), bind("a"), sync}, true},
		{"prepared alone", [][]byte{parse("a", "INSERT INTO x"), sync}, false},
		{"within BEGIN", [][]byte{parse("b", "BEGIN"), parse("a", "UPDATE x"), bind("b"), bind("a"), sync}, false},
		{"and its COMMIT", [][]byte{parse("b", "BEGIN"), parse("c", "commit"), bind("b"), sync, bind("c"), sync}, true},
		{"in one text", [][]byte{message('Q', "COMMIT\x00")}, true},
		{"with a common table", [][]byte{parse("a", "WITH n AS (SELECT) UPDATE postern.node"), bind("a"), sync}, true},
	} {
		start := []byte{0, 0, 0, 9, 0, 3, 0, 0, 0}
		var all []byte
		for _, b := range append([][]byte{start}, c.sends...) {
			all = append(all, b...)
		}
		for _, step := range []int{1, 3, len(all)} { // however it arrives
			w, got := &wire{statements: map[string]kind{}}, false
			for from := 0; from < len(all); from += step {
				got = w.read(all[from:min(from+step, len(all))]) || got
			}
			if got != c.want {
				t.Errorf("%s, by %d bytes: commits %t, want %t", c.name, step, got, c.want)
			}
		}
	}
}

// Each fault that the product can have planted has a scenario, and each scenario its fault.
func TestEachTwinIsPlantedAndTried(t *testing.T) {
	planted, tried := map[string]bool{}, map[string]bool{}
	called := regexp.MustCompile(`twin\.(?:Planted|SQL)\("([a-z_]+)"`)
	err := filepath.WalkDir("../../internal", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range called.FindAllSubmatch(text, -1) {
			planted[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("twins.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range twins {
		tried[w.name] = true
		if !planted[w.name] {
			t.Errorf("%s has a scenario and is planted nowhere", w.name)
		}
		if !strings.Contains(string(table), "| `"+w.name+"` |") {
			t.Errorf("%s is not in twins.md: run make chaos-twins", w.name)
		}
	}
	for name := range planted {
		if !tried[name] {
			t.Errorf("%s is planted and has no scenario", name)
		}
	}
}
