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

// A process that stands still calls nothing: it may call late from the moment at which it goes on.
func TestAFrozenProcessMayBeLateOnceItGoesOn(t *testing.T) {
	w := &world{dir: t.TempDir(), life: t.Context(), ttl: 50 * time.Millisecond}
	p := &process{name: "work-1", bin: "/bin/sh", dir: w.dir, args: []string{"-c", "echo begun; exec sleep 1000"}}
	w.processes = []*process{p}
	p.start()
	w.awaitBegun(1)
	began := time.Now()
	freeze(t.Context(), w, rand.New(rand.NewPCG(1, 1)))
	if w.end(time.Minute); len(w.thawed) != 1 {
		t.Fatalf("one process went on, and it knows of %v", w.thawed)
	}
	if s := w.thawed[0]; s.process != "work-1" || s.from.Sub(began) < w.ttl || s.to.Sub(s.from) < w.ttl {
		t.Errorf("it may be late %v, frozen at %v", s, began)
	}
}
