package main

import (
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
		begun := func(n int) {
			for text := ""; strings.Count(text, "begun") < n; time.Sleep(10 * time.Millisecond) {
				b, _ := os.ReadFile(filepath.Join(w.dir, "work-1.log"))
				text = string(b)
			}
		}
		p.start()
		begun(1)
		p.signal(syscall.SIGTERM)
		if w.awaitAnew(t.Context(), p, 1, c.within) == c.hangs || (len(w.wrong[invariant]) == 1) != c.hangs {
			t.Errorf("%s: it finds %v", c.script, w.wrong)
		}
		begun(p.starts())
		out := &result{Violations: map[string][]string{}}
		out.checkEnd(w.end(c.within))
		if (len(out.Violations[invariant]) == 1) != c.hangs {
			t.Errorf("%s: at the end it finds %v", c.script, out.Violations)
		}
	}
}
