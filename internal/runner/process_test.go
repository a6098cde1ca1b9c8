package runner

import (
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/api/client"
)

// processVariable makes a test process a runner of the server that it names.
const processVariable = "RUNNER_TEST_SERVER"

// TestHelperRunner is no test: it is the process of a runner, which others freeze and kill.
func TestHelperRunner(t *testing.T) {
	at := os.Getenv(processVariable)
	if at == "" {
		t.Skip("a helper of other tests")
	}
	name, url, _ := strings.Cut(at, "=")
	New(Config{
		Name:     "r",
		Instance: name,
		API:      client.New(url),
		Box:      box(t),
		Types:    []string{"python"},
		Slots:    2,
		Wait:     time.Second,
		Log:      slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}).Run(t.Context())
}

// process starts a runner as a process of its own.
func (s *server) process(instance string) *exec.Cmd {
	s.t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestHelperRunner$")
	cmd.Env = append(os.Environ(), processVariable+"="+instance+"="+s.URL)
	cmd.Stderr = words{s.t}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}

// sweep offers anew what a silent runner holds, as a server does.
func (s *server) sweep() {
	for _, r := range s.rows {
		if time.Since(s.seen) > s.ttl {
			s.offer(r)
		}
	}
}

func TestARunnerThatWakesUpChangesNothing(t *testing.T) {
	s := newServer(t)
	s.ttl = 3 * time.Second
	marker, mark := marked(t)
	r := s.add(marks, mark)
	frozen := s.process("frozen")
	s.sees("it runs", func() bool { return r.text() != "" })
	frozen.Process.Signal(syscall.SIGSTOP)
	s.sees("its ttl is over", func() bool { s.sweep(); return r.state == "Offered" })
	s.mu.Lock()
	s.epoch = 0 // another runner has it now, and has not ended yet
	r.state, r.lines = "Held", nil
	s.mu.Unlock()
	if scripts(marker) == 0 {
		t.Error("the script is gone while its runner is frozen")
	}
	frozen.Process.Signal(syscall.SIGCONT)
	woken := time.Now()
	s.sees("the script is killed", func() bool { return scripts(marker) == 0 })
	t.Logf("killed %s after the runner woke up", time.Since(woken))
	s.sees("it registers again", func() bool { return s.calls["register"] > 1 })
	if r.body != "" || len(r.lines) != 0 || r.state == "Finished" {
		t.Errorf("it changed the try of another: %+v", r)
	}
}

func TestARunnerThatIsKilledLeavesItsJobsToAnother(t *testing.T) {
	s := newServer(t)
	s.ttl = 2 * time.Second
	marker, mark := marked(t)
	r := s.add(marks, mark)
	killed := s.process("killed")
	s.sees("it runs", func() bool { return r.text() != "" })
	killed.Process.Kill()
	s.sees("nothing of the script is alive", func() bool { return scripts(marker) == 0 })
	s.mu.Lock()
	r.job.Script, r.lines = "print('again')", nil
	s.mu.Unlock()
	s.process("next")
	s.sees("another has done it", func() bool { s.sweep(); return r.state == "Finished" })
	if r.finish.Result["stdout"] != "again\n" {
		t.Errorf("%+v", r.finish)
	}
}
