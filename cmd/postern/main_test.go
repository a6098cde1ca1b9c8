package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/devpg"
	"github.com/postern-dev/postern/internal/pgtest"
)

var update = flag.Bool("update", false, "write the golden files")

// binary is the program under test, really built, and as `make demo` builds it.
var binary string

// linked leaves out what debuggers need: to link takes half the time.
const linked = "-ldflags=-s -w"

func TestMain(m *testing.M) {
	devpg.MaybeChild()
	dir, err := os.MkdirTemp("", "postern-cli-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "postern")
	if out, err := exec.Command("go", "build", linked, "-o", binary, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build postern: %v\n%s", err, out)
		os.Exit(1)
	}
	// an installation of its own, and nothing of the developer's shell
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "PG") || name == "DATABASE_URL" || strings.HasPrefix(name, "POSTERN_") &&
			!strings.HasPrefix(name, "POSTERN_TEST_") && name != "POSTERN_PG_BIN" {
			os.Unsetenv(name)
		}
	}
	os.Setenv("XDG_STATE_HOME", dir)
	os.Setenv("POSTERN_PG_DOWNLOAD", "false")
	pgtest.Main(remover{m, dir})
}

// remover runs the tests and removes what was built for them.
type remover struct {
	*testing.M
	dir string
}

func (r remover) Run() int {
	defer os.RemoveAll(r.dir)
	return r.M.Run()
}

// process is a postern that runs.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	lines  chan string // of its standard output
	mu     sync.Mutex
	errors bytes.Buffer
	ended  chan struct{}
}

// start runs postern with more environment.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(binary, args...), lines: make(chan string, 1000), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stderr = lockedWriter{p}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		s := bufio.NewScanner(out)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			p.lines <- s.Text()
		}
		close(p.lines)
		p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("postern %s said:\n%s", strings.Join(args, " "), p.stderr())
		}
	})
	return p
}

// line waits for the next line of standard output.
func (p *process) line() string {
	p.t.Helper()
	select {
	case l, ok := <-p.lines:
		if !ok {
			p.t.Fatalf("postern ended without another line; it said:\n%s", p.stderr())
		}
		return l
	case <-time.After(90 * time.Second):
		p.t.Fatal("postern printed no line for 90 s")
	}
	return ""
}

// rest returns what else it prints until it ends.
func (p *process) rest() string {
	var b strings.Builder
	for l := range p.lines {
		b.WriteString(l + "\n")
	}
	return b.String()
}

// wait returns the exit code.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(90 * time.Second):
		p.t.Fatal("postern did not end within 90 s")
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) signal(s os.Signal) { p.cmd.Process.Signal(s) }

func (p *process) stderr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.errors.String()
}

type lockedWriter struct{ p *process }

func (w lockedWriter) Write(b []byte) (int, error) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	return w.p.errors.Write(b)
}

// result of a command that ended.
type result struct {
	code   int
	stdout string
	stderr string
}

// postern runs a command to its end.
func postern(t *testing.T, env []string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // of a machine that runs much beside it
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Env = append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// want checks the exit code and that every text stands in what was said.
func (r result) want(t *testing.T, code int, texts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d\n%s%s", r.code, code, r.stdout, r.stderr)
	}
	for _, text := range texts {
		if !strings.Contains(r.stdout+r.stderr, text) {
			t.Errorf("%q is missing in\n%s%s", text, r.stdout, r.stderr)
		}
	}
}

// database is the environment that names a database.
func database(url string) []string { return []string{"DATABASE_URL=" + pgtest.Few(url)} }
