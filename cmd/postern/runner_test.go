package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/runner"
)

// jobServer is a FAKE of the server that has one job. The real one takes its place when it is there.
type jobServer struct {
	mu       sync.Mutex
	given    bool
	register runner.RegisterRequest
	finish   runner.FinishRequest
	fence    string
	key      string
	renewals int
}

func (s *jobServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := json.NewDecoder(r.Body)
	var out any
	switch verb := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]; {
	case verb == "register":
		in.Decode(&s.register)
		s.key = r.Header.Get("Authorization") + " " + r.Header.Get("Postern-Context")
		out = runner.RegisterAnswer{Epoch: 1, TTL: "9s"}
	case verb == "claim" && !s.given:
		s.given = true
		out = runner.ClaimAnswer{Jobs: []runner.Job{{
			Try:        "2c6f0f6e-6d5f-4e9e-8f4a-0d7a5b6f9a01",
			Fence:      7,
			Job:        "2c6f0f6e-6d5f-4e9e-8f4a-0d7a5b6f9a02",
			Context:    "shop",
			ScriptType: "python",
			Script:     "import os; print(sorted(n for n in os.environ if 'SECRET' in n))",
			Timeout:    60,
		}}}
	case verb == "claim":
		s.mu.Unlock()
		select {
		case <-r.Context().Done():
		case <-time.After(time.Second):
		}
		s.mu.Lock()
		w.WriteHeader(http.StatusNoContent)
		return
	case verb == "renew":
		s.renewals++
		out = runner.RenewAnswer{TTL: "9s"}
	case verb == "finish":
		in.Decode(&s.finish)
		s.fence = r.Header.Get(runner.HeaderFence)
		out = runner.EndAnswer{Changed: true}
	default:
		w.WriteHeader(http.StatusNoContent)
		return
	}
	json.NewEncoder(w).Encode(out)
}

// runnerProcess is the program as a runner, with a state directory that every user may pass.
func runnerProcess(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	state := t.TempDir()
	for at := state; at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
		os.Chmod(at, 0o711)
	}
	cmd := exec.Command(binary, append([]string{"runner", "--state", state, "--log-format", "json"}, args...)...)
	cmd.Env = append(os.Environ(), "POSTERN_API_KEY=pk_test", "SECRET_OF_THE_RUNNER=x")
	return cmd
}

func TestARunnerExecutesAJobOverHTTP(t *testing.T) {
	if os.Getenv("POSTERN_TEST_RUNNER") == "" {
		t.Skip("POSTERN_TEST_RUNNER=1 runs it")
	}
	s := &jobServer{}
	server := httptest.NewServer(s)
	defer server.Close()
	cmd := runnerProcess(t, "--url", server.URL, "--context", "shop", "--name", "r1", "--types", "python,sal",
		"--slots", "3")
	var log bytes.Buffer
	if out, err := runnerProcess(t, "--url", server.URL, "--types", "sal").CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "sal") {
		t.Errorf("a runner that can execute nothing: %v %s", err, out)
	}
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		s.mu.Lock()
		done := s.finish.Result != nil
		s.mu.Unlock()
		if done {
			break
		}
		select {
		case err := <-exited:
			if strings.Contains(log.String(), "gives no box") {
				t.Skip(log.String())
			}
			t.Fatalf("the runner has ended: %v\n%s", err, log.String())
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("no result after a minute\n%s", log.String())
		}
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if err := <-exited; err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, log.String())
	}
	g := s.register
	if g.Instance == "" || g.Slots != 3 || strings.Join(g.ScriptTypes, " ") != "python" || g.Missing["sal"] == "" ||
		g.Version == "" || s.key != "Bearer pk_test shop" {
		t.Errorf("it registered with %+v, key %q", g, s.key)
	}
	if f := s.finish; f.Result["stdout"] != "[]\n" || s.fence != "7" ||
		f.Isolation != "partial" && f.Isolation != "strict" {
		t.Errorf("it finished with %+v under fence %s", f, s.fence)
	}
}

func TestTheFlagsOfARunnerAreChecked(t *testing.T) {
	for args, want := range map[string]string{
		"--slots 0":                          "--slots 0: want 1 to 1000",
		"--isolation box":                    `--isolation "box": want strict, partial or off`,
		"--memory 0":                         "--memory 0",
		"--read-only usr":                    `--read-only "usr"`,
		"--interpreter sal":                  `--interpreter "sal": want TYPE=PROGRAM`,
		"--unlimited-address-space sal":      "no interpreter is given for it",
		"--types sal --url http://127.0.0.1": "no interpreter is configured for the script type",
	} {
		out, err := runnerProcess(t, strings.Fields(args)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v %s, want %q", args, err, out, want)
		}
	}
}
