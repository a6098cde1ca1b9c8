package runner

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/api/client"
	"github.com/postern-dev/postern/internal/sandbox"
)

// box is a sandbox: of the kernel where it gives one.
func box(t *testing.T) *sandbox.Box {
	t.Helper()
	state := t.TempDir()
	for at := state; at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
		os.Chmod(at, 0o711)
	}
	c := sandbox.Config{State: state, Limits: sandbox.Limits{Grace: time.Second}}
	b, err := sandbox.New(context.Background(), c)
	if err != nil {
		t.Log(err)
		c.Least = sandbox.Off
		b, err = sandbox.New(context.Background(), c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// words writes the log of a runner into that of the test, as long as it runs.
type words struct{ t *testing.T }

func (w words) Write(b []byte) (int, error) {
	w.t.Logf("%s", strings.TrimSpace(string(b)))
	return len(b), nil
}

// start starts a runner of the server. The returned function tells it to end and waits for it.
func (s *server) start(change ...func(*Config)) (stop func()) {
	s.t.Helper()
	c := Config{
		Name:     "r",
		Instance: "instance-1",
		API:      client.New(s.URL),
		Types:    []string{"python"},
		Slots:    2,
		Version:  "test",
		Wait:     time.Second,
		Log:      slog.New(slog.NewTextHandler(words{s.t}, nil)),
	}
	for _, f := range change {
		f(&c)
	}
	if c.Box == nil {
		c.Box = box(s.t)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := New(c).Run(ctx); err != nil {
			s.t.Error(err)
		}
	}()
	stop = func() { cancel(); <-done }
	s.t.Cleanup(stop)
	return stop
}

// marks is a script that says that it runs, and then sleeps.
const marks = "import time; print('runs', flush=True); time.sleep(600)"

// scripts counts the processes of scripts of this test.
func scripts(marker string) (n int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, d := range dirs {
		text, _ := os.ReadFile(d)
		if strings.Contains(string(text), "MARKER="+marker) {
			n++
		}
	}
	return n
}

// marked gives a job a marker that scripts finds.
func marked(t *testing.T) (string, func(*Job)) {
	marker := strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	return marker, func(j *Job) { j.Env["MARKER"] = marker }
}

func TestARunnerExecutesAJobAndTellsItsEnd(t *testing.T) {
	s := newServer(t)
	good := s.add(`
import json, os
print("one"); print("two")
inputs = json.load(open(os.environ["POSTERN_INPUTS"]))
result = {"n": inputs["7"]["k"] + os.environ["POSTERN_ATTEMPT"], "t": os.environ["POSTERN_TOKEN"]}
json.dump(result, open(os.environ["POSTERN_RESULT"], "w"))`, func(j *Job) { j.Inputs = []byte(`{"7": {"k": "3"}}`) })
	bad := s.add(`
import json, os, sys
json.dump({"half": "done"}, open(os.environ["POSTERN_RESULT"], "w")); print("alas", file=sys.stderr); sys.exit(3)`)
	slow := s.add("import time; time.sleep(99)", func(j *Job) { j.Timeout = 1 })
	other := s.add("x", func(j *Job) { j.ScriptType = "sal" })
	evil := s.add("x", func(j *Job) { j.Env["LD_PRELOAD"] = "x" })
	s.start()
	s.sees("all have ended", func() bool {
		for _, r := range s.rows {
			if r.state != "Finished" && r.state != "Failed" {
				return false
			}
		}
		return true
	})
	if good.state != "Finished" || good.finish.Result["n"] != "31" || good.finish.Result["t"] != "tx-1.1" ||
		good.text() != "stdout:one\nstdout:two\n" ||
		good.finish.Isolation == "" || good.finish.Usage.WallMS == 0 {
		t.Errorf("%s %+v, log %q", good.state, good.finish, good.text())
	}
	if f := bad.fail; f.Code != "exit" || *f.ExitCode != 3 || f.Partial["half"] != "done" ||
		!strings.Contains(f.Error, "alas") || bad.text() != "stderr:alas\n" {
		t.Errorf("%+v, log %q: want exit 3", f, bad.text())
	}
	for r, want := range map[*row]string{slow: "timed_out", other: "no_interpreter", evil: "bad_environment"} {
		if r.fail.Code != want || r.fail.Final != (want == "bad_environment") {
			t.Errorf("%+v: want %s", r.fail, want)
		}
	}
}

func TestLostAnswersChangeNothing(t *testing.T) {
	s := newServer(t)
	s.lose = map[string]int{"register": 1, "claim": 1, "log": 2, "finish": 2, "fail": 2, "renew": 1}
	good := s.add("print('one'); print('two')")
	bad := s.add("import sys; sys.exit(3)")
	s.start()
	s.sees("both have ended, and each end was told again", func() bool {
		return good.state == "Finished" && bad.state == "Failed" && s.calls["finish"] == 3 && s.calls["fail"] == 3
	})
	if s.claims < 3 || good.text() != "stdout:one\nstdout:two\n" {
		t.Errorf("%d jobs were handed out, want those of the lost answer again; log %q", s.claims, good.text())
	}
}

func TestWhatIsLostIsKilledAndNotReported(t *testing.T) {
	for what, lose := range map[string]func(s *server, r *row){
		"another holder has it": func(s *server, r *row) { s.offer(r); r.state = "Held" },
		"the database does not know it": func(s *server, r *row) {
			s.rows = nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			s := newServer(t)
			s.ttl = 2 * time.Second
			marker, mark := marked(t)
			r := s.add(marks, mark)
			s.start()
			s.sees("it runs", func() bool { return r.text() != "" })
			s.mu.Lock()
			lose(s, r)
			s.mu.Unlock()
			s.sees("it is killed", func() bool { return scripts(marker) == 0 })
			next := s.add("print('next')")
			s.sees("the next one ends", func() bool { return next.state == "Finished" })
			if r.body != "" || s.calls["fail"] != 0 {
				t.Errorf("%s was reported, %d calls of fail", r.body, s.calls["fail"])
			}
		})
	}
}

func TestWhatIsToStopIsStoppedAndReported(t *testing.T) {
	s := newServer(t)
	s.ttl = time.Second
	marker, mark := marked(t)
	r := s.add(marks, mark)
	s.start()
	s.sees("it runs", func() bool { return r.text() != "" })
	s.mu.Lock()
	r.stop = true
	s.mu.Unlock()
	s.sees("it has ended", func() bool { return r.state == "Failed" })
	if r.fail.Code != "stopped" || scripts(marker) != 0 {
		t.Errorf("%+v, %d processes: want stopped", r.fail, scripts(marker))
	}
}

func TestARunnerThatCannotRenewKillsBeforeTheServerGivesToOthers(t *testing.T) {
	s := newServer(t)
	s.ttl = 3 * time.Second
	marker, mark := marked(t)
	r := s.add(marks, mark)
	s.start()
	s.sees("it runs", func() bool { return r.text() != "" })
	s.mu.Lock()
	s.down = true
	s.mu.Unlock()
	s.sees("it is killed", func() bool { return scripts(marker) == 0 })
	s.mu.Lock()
	t.Logf("killed %s before the end of the ttl", time.Until(s.seen.Add(s.ttl)))
	s.down = false
	s.offer(r) // as the server's sweep does
	r.job.Script = "print('again')"
	s.changed.Broadcast()
	s.mu.Unlock()
	s.sees("the job is done in another try", func() bool { return r.state == "Finished" })
}

// The runner kills what it could not renew, and the server, which has not noticed, hands it out again under the same
// fence: the log goes on behind what it has.
func TestALogGoesOnWhereTheSameHoldComesAgain(t *testing.T) {
	s := newServer(t)
	s.ttl = 12 * time.Second // as long as a script may take that is begun again while no heartbeat is answered
	marker, mark := marked(t)
	r := s.add(marks, mark)
	s.start()
	s.sees("it runs", func() bool { return r.text() != "" })
	fence := r.job.Fence
	s.mu.Lock()
	s.down = true
	s.mu.Unlock()
	s.sees("it is killed", func() bool { return scripts(marker) == 0 })
	s.mu.Lock()
	s.down, s.deaf = false, "renew" // which would offer it to others
	r.job.Script = "print('again')"
	s.mu.Unlock()
	s.sees("it is done", func() bool { return r.state == "Finished" })
	want := "stdout:runs\nrunner:begins again; what ran before was killed: no heartbeat was answered in time\n" +
		"stdout:again\n"
	if r.text() != want || r.job.Fence != fence {
		t.Errorf("fence %d, then %d; log %q, want %q", fence, r.job.Fence, r.text(), want)
	}
}

func TestAnEndThatCouldNotBeToldInTimeIsToldLater(t *testing.T) {
	s := newServer(t)
	s.ttl = 2 * time.Second
	s.deaf = "finish"
	r := s.add("print('x')")
	s.start()
	s.sees("its end is told to a server that does not answer", func() bool { return s.calls["finish"] > 0 })
	s.mu.Lock()
	s.down = true
	s.mu.Unlock()
	s.sees("the ttl is over", func() bool { return time.Since(s.seen) > s.ttl })
	s.mu.Lock()
	s.down, s.deaf = false, ""
	s.mu.Unlock()
	s.sees("the end is recorded", func() bool { return r.state == "Finished" })
}

func TestANewEpochEndsWhatWasHeldUnderTheOldOne(t *testing.T) {
	s := newServer(t)
	s.ttl = 2 * time.Second
	marker, mark := marked(t)
	r := s.add(marks, mark)
	s.start()
	s.sees("it runs", func() bool { return r.text() != "" })
	s.mu.Lock()
	s.epoch++ // somebody took the name over, and is gone
	s.offer(r)
	r.job.Script, r.job.Env = "print('again')", map[string]string{}
	r.lines = nil
	s.mu.Unlock()
	s.sees("it is done under the next epoch", func() bool { return r.state == "Finished" })
	s.mu.Lock()
	registrations := s.calls["register"]
	s.mu.Unlock()
	if scripts(marker) != 0 || registrations < 2 {
		t.Errorf("%d processes, %d registrations", scripts(marker), registrations)
	}
}

func TestTwoProcessesDoNotShareAName(t *testing.T) {
	s := newServer(t)
	s.ttl = time.Minute
	s.start()
	s.sees("the first is there", func() bool { return s.epoch != 0 })
	first := s.epoch
	s.start(func(c *Config) { c.Instance = "instance-2" })
	s.sees("the second is refused, and asks again", func() bool { return s.calls["register"] > 3 })
	if s.epoch != first {
		t.Error("the second has taken the name")
	}
}

func TestARunnerThatEndsFinishesWhatRunsOrGivesItBack(t *testing.T) {
	s := newServer(t)
	short := s.add("import time; print('runs', flush=True); time.sleep(1)")
	marker, mark := marked(t)
	long := s.add(marks, mark)
	stop := s.start(func(c *Config) { c.Drain = 10 * time.Second })
	s.sees("both run", func() bool { return short.text() != "" && long.text() != "" })
	third := s.add("print('third')")
	s.mu.Lock()
	third.state = "Hidden" // until the runner is told to end
	s.mu.Unlock()
	stop()
	if short.state != "Finished" || long.state != "Offered" || scripts(marker) != 0 {
		t.Errorf("short %s, long %s, %d processes: want Finished, Offered, none",
			short.state, long.state, scripts(marker))
	}
	if long.body != "" || long.job.Fence == 0 {
		t.Errorf("%+v: want nothing told about what was given back", long)
	}
}

func TestARunnerExecutesAsManyAsItHasSlots(t *testing.T) {
	s := newServer(t)
	var all []*row
	for range 6 {
		all = append(all, s.add("import time; print('runs', flush=True); time.sleep(0.3)"))
	}
	s.start()
	most := 0
	s.sees("all are done", func() bool {
		held, done := 0, 0
		for _, r := range all {
			switch r.state {
			case "Held":
				held++
			case "Finished":
				done++
			}
		}
		most = max(most, held)
		return done == len(all)
	})
	if most != 2 {
		t.Errorf("%d at once, want the two slots", most)
	}
}

func TestAPausedRunnerGoesOnLater(t *testing.T) {
	s := newServer(t)
	s.paused = true
	r := s.add("print('x')")
	s.start()
	s.sees("it was told that it is paused", func() bool { return s.calls["claim"] > 1 })
	s.mu.Lock()
	s.paused = false
	s.mu.Unlock()
	s.sees("it is done", func() bool { return r.state == "Finished" })
}

func TestAResultThatTheServerRefusesIsAFailure(t *testing.T) {
	s := newServer(t)
	r := s.add("print('x')")
	s.start(func(c *Config) {
		c.API.HTTP = &http.Client{Transport: refusal(func(q *http.Request) bool {
			return strings.HasSuffix(q.URL.Path, "/finish")
		})}
	})
	s.sees("it has failed", func() bool { return r.state == "Failed" })
	if r.fail.Code != "bad_result" || !strings.Contains(r.fail.Error, "too large") {
		t.Errorf("%+v", r.fail)
	}
}

// What a script leaves that the server refuses, also with its failure, ends the try all the same: one that is not told
// would be executed again and again.
func TestAFailureThatTheServerRefusesIsToldPlainly(t *testing.T) {
	s := newServer(t)
	r := s.add(`import os; open(os.environ["POSTERN_RESULT"], "w").write('{"a": "b"}'); raise SystemExit(3)`)
	s.start(func(c *Config) {
		c.API.HTTP = &http.Client{Transport: refusal(func(q *http.Request) bool {
			if !strings.HasSuffix(q.URL.Path, "/fail") {
				return false
			}
			text, _ := io.ReadAll(q.Body)
			q.Body = io.NopCloser(bytes.NewReader(text))
			return bytes.Contains(text, []byte(`"partial":{`))
		})}
	})
	s.sees("it has failed", func() bool { return r.state == "Failed" })
	if r.fail.Code != sandbox.CodeExit || !strings.Contains(r.fail.Error, "too large") {
		t.Errorf("%+v", r.fail)
	}
}

// A script that writes more lines at once than one call takes, and more than a result may have, ends well: all of its
// lines come, and the end of its output is its result.
func TestMuchOutputComesWhole(t *testing.T) {
	s := newServer(t)
	r := s.add(`print("\n".join('"' * 20 for _ in range(5000)))`)
	s.start()
	s.sees("it has ended", func() bool { return r.state == "Finished" || r.state == "Failed" })
	if r.state != "Finished" || len(r.lines) != 5000 || len(r.finish.Result["stdout"]) < 30_000 {
		t.Errorf("%s with %d lines, %+v", r.state, len(r.lines), r.fail)
	}
}

// refusal is a server that refuses some calls for good, in front of the other one.
type refusal func(*http.Request) bool

func (f refusal) RoundTrip(q *http.Request) (*http.Response, error) {
	if !f(q) {
		return http.DefaultTransport.RoundTrip(q)
	}
	const problem = `{"code": "invalid", "status": 422, "detail": "the result is too large"}`
	return &http.Response{
		StatusCode: 422,
		Header:     http.Header{"Content-Type": {"application/problem+json"}},
		Body:       io.NopCloser(strings.NewReader(problem)),
		Request:    q,
	}, nil
}

// A runner whose key the server refuses ends with that as its error: at once where it registers, and where it runs
// after its ttl, when its scripts are killed. One that is taken back within the ttl goes on.
func TestARunnerThatIsRefusedEnds(t *testing.T) {
	s := newServer(t)
	s.ttl = 12 * time.Second
	s.denies = 401
	run := func() chan error {
		ended := make(chan error, 1)
		c := Config{Name: "r", Instance: "i", API: client.New(s.URL), Types: []string{"python"}, Slots: 1, Box: box(t),
			Wait: time.Second, Drain: time.Second, Log: slog.New(slog.NewTextHandler(words{t}, nil))}
		go func() { ended <- New(c).Run(t.Context()) }()
		return ended
	}
	refusedAs := func(ended chan error, status int) {
		t.Helper()
		select {
		case err := <-ended:
			if p := problem(err); p == nil || int(p.Status) != status {
				t.Errorf("it ended with %v, want HTTP %d", err, status)
			}
		case <-time.After(time.Minute):
			t.Fatal("it goes on in silence")
		}
	}
	refusedAs(run(), 401)
	deny := func(status int) {
		s.mu.Lock()
		s.denies = status
		s.mu.Unlock()
	}
	deny(0)
	marker, with := marked(t)
	s.add(marks, with)
	ended := run()
	s.sees("the script runs", func() bool { return scripts(marker) > 0 })
	s.mu.Lock()
	before := s.calls["claim"] + s.calls["renew"]
	s.denies = 403
	s.mu.Unlock()
	s.sees("a call is refused", func() bool { return s.calls["claim"]+s.calls["renew"] > before })
	deny(0)
	if time.Sleep(s.ttl); scripts(marker) == 0 {
		t.Error("the script was killed although the runner was taken back within its ttl")
	}
	deny(403)
	refusedAs(ended, 403)
	if n := scripts(marker); n != 0 {
		t.Errorf("%d processes of the script are left", n)
	}
}
