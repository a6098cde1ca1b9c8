package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// slow says that the race detector is in the program: each script begins as a process of this program, which takes a
// second then.
var slow bool

func TestMain(m *testing.M) {
	if slow && os.Getenv("POSTERN_TEST_SANDBOX") == "" {
		fmt.Println("skipped: with the race detector they take ten minutes (POSTERN_TEST_SANDBOX=1), and make test " +
			"runs them without it")
		return
	}
	os.Exit(m.Run())
}

// stateDir is a directory that every user may pass, as the state of a runner has to be.
func stateDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for at := dir; at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
		os.Chmod(at, 0o711)
	}
	return dir
}

// newBox is a box of this machine, or a skipped test where the kernel gives none.
func newBox(t *testing.T, c Config) *Box {
	t.Helper()
	c.State = or(c.State, stateDir(t))
	b, err := New(context.Background(), c)
	if err != nil && c.Least != Off {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// told are the lines of a script.
type told struct {
	mu    sync.Mutex
	lines []Line
}

func (l *told) add(line Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

func (l *told) text(stream string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for _, line := range l.lines {
		if line.Stream == stream {
			b.WriteString(line.Text + "\n")
		}
	}
	return b.String()
}

// python starts a script of Python.
func python(t *testing.T, b *Box, s Script) (*Process, *told) {
	t.Helper()
	lines := &told{}
	s.Type, s.Context, s.Name = "python", or(s.Context, "default"), or(s.Name, "try-1")
	s.Timeout = or(s.Timeout, 2*time.Minute)
	p, err := b.Start(s, lines.add)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p, lines
}

// outcome runs a script of Python to its end.
func outcome(t *testing.T, b *Box, text string) (Outcome, *told) {
	t.Helper()
	p, lines := python(t, b, Script{Text: text})
	return p.Wait(), lines
}

func TestAScriptGetsItsInputsAndGivesItsResult(t *testing.T) {
	b := newBox(t, Config{})
	p, lines := python(t, b, Script{
		Text: `
import json, os, sys
inputs = json.load(open(os.environ["POSTERN_INPUTS"]))
print("first"); print("second"); print("third", file=sys.stderr)
json.dump({"n": inputs["1"]["k"], "a": os.environ["A"], "cwd": os.getcwd()}, open(os.environ["POSTERN_RESULT"], "w"))`,
		Env:    map[string]string{"A": "f"},
		Inputs: []byte(`{"1": {"k": "3"}}`),
	})
	o := p.Wait()
	if o.Code != "" || o.Result["n"] != "3" || o.Result["a"] != "f" || o.Result["cwd"] != "/job" || *o.Exit != 0 {
		t.Errorf("outcome %+v: want its result", o)
	}
	if got := lines.text("stdout"); got != "first\nsecond\n" {
		t.Errorf("stdout %q", got)
	}
	if got := lines.text("stderr"); got != "third\n" {
		t.Errorf("stderr %q", got)
	}
	if left, _ := os.ReadDir(filepath.Join(b.config.State, "contexts/default")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	level, why := b.Level()
	t.Logf("level %s (%s), usage %+v", level, why, o.Usage)
}
