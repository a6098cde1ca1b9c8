package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// alive are the processes of this machine that have a marker in their command line or environment. It looks only at
// programs that scripts are made of: others are many.
func alive(marker string) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		comm, _ := os.ReadFile(d + "/comm")
		if !bytes.HasPrefix(comm, []byte("python")) {
			continue
		}
		cmdline, _ := os.ReadFile(d + "/cmdline")
		environ, _ := os.ReadFile(d + "/environ")
		if bytes.Contains(append(cmdline, environ...), []byte(marker)) {
			pid, _ := strconv.Atoi(filepath.Base(d))
			pids = append(pids, pid)
		}
	}
	return pids
}

// deserter starts a process that leaves its group, its session and its parent, and one that only leaves its parent.
const deserter = `
import os, sys, time
marker = os.environ["MARKER"]
def deserts(session):
    if os.fork() == 0:
        if session: os.setsid()
        if os.fork() == 0:
            sleeps = "import time, signal; signal.signal(15, 1); time.sleep(600)"
            os.execv(sys.executable, [sys.executable, "-c", sleeps, marker])
        os._exit(0)
deserts(True); deserts(False)
time.sleep(0.2)
print("started", flush=True)
`

func levels(t *testing.T, f func(t *testing.T, c Config)) {
	for _, least := range []Level{Partial, Off} {
		t.Run(string(least), func(t *testing.T) { f(t, Config{Least: least, Limits: Limits{Grace: time.Second}}) })
	}
}

func TestNothingOfAScriptOutlivesIt(t *testing.T) {
	levels(t, func(t *testing.T, c Config) {
		b := newBox(t, c)
		for what, s := range map[string]struct {
			rest string
			end  func(*Process)
			code string
		}{
			"it ends":         {"", nil, ""},
			"it fails":        {"sys.exit(3)", nil, CodeExit},
			"its time ends":   {"import signal; signal.signal(15, signal.SIG_IGN); time.sleep(600)", nil, CodeTimedOut},
			"it is stopped":   {"time.sleep(600)", (*Process).Stop, CodeStopped},
			"it is killed":    {"time.sleep(600)", (*Process).Kill, CodeStopped},
			"it kills itself": {"os.kill(os.getpid(), 9)", nil, CodeSignal},
		} {
			marker := fmt.Sprintf("marker-%d-%d", os.Getpid(), time.Now().UnixNano())
			timeout := time.Minute
			if s.code == CodeTimedOut {
				timeout = 3 * time.Second
			}
			env := map[string]string{"MARKER": marker}
			p, lines := python(t, b, Script{Text: deserter + s.rest, Env: env, Timeout: timeout})
			waitUntil(t, what+": it has started", func() bool { return lines.text("stdout") != "" })
			if s.end != nil {
				if len(alive(marker)) < 3 {
					t.Errorf("%s: alive are %v, want the script and two more", what, alive(marker))
				}
				s.end(p)
			}
			if o := p.Wait(); o.Code != s.code {
				t.Errorf("%s: outcome %+v, want code %q", what, o, s.code)
			}
			if pids := alive(marker); len(pids) != 0 {
				t.Errorf("%s: %v are still alive", what, pids)
			}
		}
	})
}

// The variable that makes a test process a runner which the test kills.
const runnerVariable = "SANDBOX_TEST_RUNNER"

func TestARunnerThatIsKilledTakesItsScriptsWithIt(t *testing.T) {
	if state := os.Getenv(runnerVariable); state != "" { // the runner
		b := newBox(t, Config{State: state, Least: Level(os.Getenv("SANDBOX_TEST_LEVEL"))})
		env := map[string]string{"MARKER": os.Getenv("SANDBOX_TEST_MARKER")}
		python(t, b, Script{Text: deserter + "time.sleep(600)", Env: env})
		select {}
	}
	levels(t, func(t *testing.T, c Config) {
		c.State = stateDir(t)
		newBox(t, c)
		marker := fmt.Sprintf("killed-%d-%d", os.Getpid(), time.Now().UnixNano())
		runner := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()[:strings.IndexByte(t.Name(), '/')]+"$")
		runner.Env = append(os.Environ(), runnerVariable+"="+c.State, "SANDBOX_TEST_LEVEL="+string(c.Least),
			"SANDBOX_TEST_MARKER="+marker)
		if err := runner.Start(); err != nil {
			t.Fatal(err)
		}
		waitUntil(t, "the script with what it started", func() bool { return len(alive(marker)) >= 3 })
		if n := newBox(t, c).Swept(); n != 0 {
			t.Errorf("another runner removed %d directories of one that is alive", n)
		}
		runner.Process.Kill()
		killed := time.Now()
		runner.Wait()
		waitUntil(t, "nothing of the script is alive", func() bool { return len(alive(marker)) == 0 })
		t.Logf("gone %s after the runner was killed", time.Since(killed))
		if n := newBox(t, c).Swept(); n != 1 {
			t.Errorf("the next runner removed %d directories, want 1", n)
		}
	})
}

func TestAnEndThatIsNotInTimeIsOne(t *testing.T) {
	b := newBox(t, Config{Limits: Limits{Grace: 300 * time.Millisecond}})
	p, _ := python(t, b, Script{Timeout: 2 * time.Second, Text: `
import json, os, signal, sys, time
json.dump({"half": "done"}, open(os.environ["POSTERN_RESULT"], "w"))
signal.signal(15, lambda *_: sys.exit(0))
time.sleep(600)`})
	o := p.Wait()
	if o.Code != CodeTimedOut || o.Partial["half"] != "done" || o.Result != nil {
		t.Errorf("%+v: want timed_out with what was done until then", o)
	}
}

func TestAFailureTellsItsExitCodeAndItsLastWords(t *testing.T) {
	b := newBox(t, Config{})
	o, _ := outcome(t, b, `
import json, os, sys
json.dump({"half": "done"}, open(os.environ["POSTERN_RESULT"], "w"))
sys.stderr.write("x" * 10000 + "\nthe last words\n"); sys.exit(3)`)
	if o.Code != CodeExit || *o.Exit != 3 || o.Partial["half"] != "done" ||
		!strings.HasSuffix(o.Error, "the last words\n") || len(o.Error) > keptStderr+200 {
		t.Errorf("%+v: want exit 3, the partial result and the last 4 KiB of stderr", o)
	}
}

func TestWhatCannotBeExecutedIsAFailureOfItsOwn(t *testing.T) {
	hidden := filepath.Join(t.TempDir(), "hidden")
	if err := os.WriteFile(hidden, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	b := newBox(t, Config{Interpreters: map[string]Interpreter{
		"rust": {Argv: []string{hidden, "{file}"}},
		"sal":  {Argv: []string{"sal-that-is-not-there", "{file}"}},
		"osis": {Argv: []string{"/var/lib/osis", "{file}"}},
		"v":    {Argv: []string{"bin/v"}},
		"sh":   {Argv: []string{"sh", "{file}"}, Ext: ".sh"},
	}})
	for _, scriptType := range []string{"sal", "osis", "v", "rust", "python"} {
		_, err := b.Start(Script{Type: scriptType, Context: "c", Name: "n"}, nil)
		var f *Failure
		if !errors.As(err, &f) || f.Code != CodeNoInterpreter || !strings.Contains(f.Detail, scriptType) {
			t.Errorf("%s: %v, want no_interpreter", scriptType, err)
		}
	}
	for name, value := range map[string]string{
		"A=B":            "",
		"":               "",
		"LD_PRELOAD":     "/x",
		"PATH":           "/x",
		"POSTERN_RESULT": "/etc/passwd",
		"NUL":            "a\x00b",
		"BIG":            strings.Repeat("x", 200<<10),
	} {
		_, err := b.Start(Script{Type: "sh", Context: "c", Name: "n", Env: map[string]string{name: value}}, nil)
		var f *Failure
		if !errors.As(err, &f) || f.Code != CodeBadEnvironment {
			t.Errorf("the variable %q: %v, want bad_environment", name, err)
		}
	}
	there, missing := b.config.Types([]string{"sh", "sal"})
	if len(there) != 1 || there[0] != "sh" || missing["sal"] == "" {
		t.Errorf("there %v, missing %v", there, missing)
	}
	if left, _ := os.ReadDir(filepath.Join(b.config.State, "contexts/c")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestARunnerRefusesWhereItCannotIsolate(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs a user who may forbid namespaces to another")
	}
	state := stateDir(t)
	os.Chmod(filepath.Dir(state), 0o700) // no user of a box can pass it
	_, err := New(context.Background(), Config{State: state})
	if err == nil || !strings.Contains(err.Error(), "chmod o+x") || !strings.Contains(err.Error(), "--isolation off") {
		t.Errorf("%v: want a refusal that says what to do", err)
	}
	if _, err := New(context.Background(), Config{State: state, Least: Off}); err != nil {
		t.Errorf("isolation off: %v", err)
	}
}

func TestTheSuiteHoldsForAnUnprivilegedUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("root starts it")
	}
	suite := exec.Command("/proc/self/exe", "-test.v", "-test.count=1", "-test.timeout=8m")
	suite.Env = append(os.Environ(), "HOME=/nonexistent")
	suite.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	text, err := suite.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	t.Logf("%d tests passed, skipped: %d", bytes.Count(text, []byte("--- PASS")), bytes.Count(text, []byte("--- SKIP")))
}
