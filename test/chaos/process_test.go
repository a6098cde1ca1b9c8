package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// "every process ends when it is told to": one that does not is found by the fault and at the end of a run.
func TestAProcessThatHangsAtItsEndIsFound(t *testing.T) {
	const invariant = "every process ends when it is told to"
	for _, c := range []struct {
		script string
		within time.Duration
		hangs  bool
	}{
		{"echo begun; exec sleep 1000", time.Minute, false},
		{"trap '' TERM; echo begun; while :; do sleep 0.1; done", 100 * time.Millisecond, true},
	} {
		w := &world{dir: t.TempDir(), life: t.Context(), wrong: map[string][]string{}}
		p := &process{name: "work-1", bin: "/bin/sh", dir: w.dir, args: []string{"-c", c.script}}
		w.processes = []*process{p}
		p.start()
		w.awaitBegun(1)
		p.signal(syscall.SIGTERM)
		if w.awaitAnew(t.Context(), p, 1, c.within) == c.hangs || (len(w.wrong[invariant]) == 1) != c.hangs {
			t.Errorf("%s: it finds %v", c.script, w.wrong)
		}
		w.awaitBegun(p.starts())
		out := &result{Violations: map[string][]string{}}
		out.checkEnd(w.end(c.within))
		if (len(out.Violations[invariant]) == 1) != c.hangs {
			t.Errorf("%s: at the end it finds %v", c.script, out.Violations)
		}
	}
}

// awaitBegun waits until the process work-1 has said so often that it has begun.
func (w *world) awaitBegun(n int) {
	for text := ""; strings.Count(text, "begun") < n; time.Sleep(10 * time.Millisecond) {
		b, _ := os.ReadFile(filepath.Join(w.dir, "work-1.log"))
		text = string(b)
	}
}

// A process that ends by itself is told apart from one that was killed, and so is how far it had come.
func TestAProcessThatEndsByItselfIsSeen(t *testing.T) {
	for _, c := range []struct {
		script string
		kill   bool
		want   string
	}{
		{"echo begun; exit 3", false, "exit code 3"},
		{`echo begun; echo '{"msg":"working"}'; exit 3`, false, "exit code 3 behind its start"},
		{"echo begun; kill -KILL $$", false, "exit code -1"},
		{"echo begun; exec sleep 1000", true, ""},
	} {
		w := &world{dir: t.TempDir(), life: t.Context()}
		p := &process{name: "work-1", bin: "/bin/sh", dir: w.dir, args: []string{"-c", c.script}}
		w.processes = []*process{p}
		p.start()
		w.awaitBegun(1)
		if c.kill {
			w.hit(p, syscall.SIGKILL)
		}
		w.awaitBegun(2)
		w.end(time.Minute)
		out := &result{Exits: map[string]int{}, Alone: map[string]int{}}
		out.ended(w)
		if (c.want == "") != (len(out.Alone) == 0) || c.want != "" && out.Alone[c.want] == 0 {
			t.Errorf("%s: it finds %v of %v", c.script, out.Alone, out.Exits)
		}
	}
}

// A process that stands still calls nothing: it may call late from the moment at which it goes on.
func TestAFrozenProcessMayBeLateOnceItGoesOn(t *testing.T) {
	w := &world{dir: t.TempDir(), life: t.Context(), ttl: 50 * time.Millisecond, pg: &postgres{port: 1},
		worker: &worker{}}
	p := &process{name: "work-1", bin: "/bin/sh", dir: w.dir, args: []string{"-c", "echo begun; exec sleep 1000"}}
	w.processes = []*process{p}
	p.start()
	w.awaitBegun(1)
	began := time.Now()
	freeze(t.Context(), w, rand.New(rand.NewPCG(1, 1)))
	if takes, lag := w.worker.takes(); takes != 0 || lag != 0 {
		t.Errorf("behind it a call takes %s more, and an answer %s", takes, lag)
	}
	if w.end(time.Minute); len(w.thawed) != 1 {
		t.Fatalf("one process went on, and it knows of %v", w.thawed)
	}
	if w.brokeNothing() == "" {
		t.Error("it had no queue that could be taken from it, and the fault counts")
	}
	if s := w.thawed[0]; s.process != "work-1" || s.from.Sub(began) < w.ttl || s.to.Sub(s.from) < w.ttl {
		t.Errorf("it may be late %v, frozen at %v", s, began)
	}
}

// A process is unaware of a restore that was started since by nothing that noticed it.
func TestWhoCannotNoticeARestore(t *testing.T) {
	at := time.Now()
	since := func(s time.Duration, after int) start { return start{at.Add(s * time.Second), after} }
	for _, c := range []struct {
		lives []start
		want  time.Duration
	}{
		{[]start{since(-9, -1)}, 0},
		{[]start{since(-9, -1), since(1, endsGoneBack), since(2, 3)}, 0},
		{[]start{since(-9, -1), since(1, 3), since(2, endsGoneBack)}, 1},
		{[]start{since(-9, -1), since(-8, endsGoneBack), since(2, -1)}, 2},
	} {
		p := &process{lives: c.lives}
		if got := p.unaware(at); c.want == 0 && !got.IsZero() || c.want > 0 && !got.Equal(at.Add(c.want*time.Second)) {
			t.Errorf("%v: it is unaware since %v", c.lives, got)
		}
	}
}
