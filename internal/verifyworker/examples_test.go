package verifyworker_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/internal/verifyworker"
)

// pass wants every check ok or not offered, but for those named.
func pass(t *testing.T, o verifyworker.Options, but ...string) {
	t.Helper()
	r, err := verifyworker.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	notRun := map[string]bool{}
	for _, name := range but {
		notRun[name] = true
	}
	for _, c := range r.Checks {
		switch {
		case c.State == verifyworker.Failed:
			t.Errorf("%s: %s (%s)", c.Name, c.Found, c.Cost)
		case (c.State == verifyworker.NotRun) != notRun[c.Name]:
			t.Errorf("%s: %s, %s", c.Name, c.State, c.Found)
		}
	}
	if !r.OK || r.Failed != 0 {
		t.Errorf("the report says ok %t, %d failed", r.OK, r.Failed)
	}
}

// start runs a program whose output names its URL, and stops it at the end of t as an operator would.
func start(t *testing.T, program string, args ...string) (url string, stop func()) {
	t.Helper()
	cmd := exec.Command(program, args...)
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = in, in
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	found := make(chan string)
	go func() {
		defer close(found)
		lines, said := bufio.NewScanner(out), false
		for lines.Scan() {
			if u := regexp.MustCompile(`http://[0-9.:]+`).FindString(lines.Text()); u != "" && !said {
				found <- u
				said = true
			} else if !said {
				t.Log(lines.Text())
			}
		}
	}()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s ended with %v", filepath.Base(program), err)
		}
		out.Close()
	}
	t.Cleanup(stop)
	if url = <-found; url == "" {
		t.Fatalf("%s named no URL", filepath.Base(program))
	}
	return url, stop
}

func TestTheExampleInGoKeepsTheContract(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := filepath.Join(dir, "worker")
	if out, err := exec.Command("go", "build", "-o", program, "../../examples/worker").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	url, _ := start(t, program, "127.0.0.1:0", filepath.Join(dir, "store"))
	pay := verifyworker.Options{URL: url, Type: "PAY", Data: json.RawMessage(`{"to":"ada","cents":1}`)}
	pass(t, pay)
	pass(t, verifyworker.Options{URL: url, Type: "GREET", Data: json.RawMessage(`{"name":"Ada"}`)},
		"distinct hashes", "status by hash", "status batch", "inclusion", "replacement")
}

func TestTheExampleInPythonKeepsTheContractAlsoOverARestart(t *testing.T) {
	t.Parallel()
	overARestart(t, verifyworker.Options{Type: "ANY"}, "python3", "../../examples/worker.py")
}

// The one in Node was written from docs/worker-contract.md alone: it stands for the worker of a stranger.
func TestTheExampleInNodeKeepsTheContractAlsoOverARestart(t *testing.T) {
	t.Parallel()
	journal := overARestart(t, verifyworker.Options{Type: "PAY"}, "node", "../../examples/worker.mjs")
	greet := verifyworker.Options{Type: "GREET", Data: json.RawMessage(`{"name":"Ada"}`)}
	greet.URL, _ = start(t, "node", "../../examples/worker.mjs", "127.0.0.1:0", journal)
	pass(t, greet, "distinct hashes", "status by hash", "status batch", "inclusion", "replacement")
}

// What the examples pay grows with each attempt, also where the call names no fee.
func TestTheExamplesOfferMoreWithEachAttempt(t *testing.T) {
	t.Parallel()
	for language, program := range map[string]string{"python3": "worker.py", "node": "worker.mjs"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(language); err != nil {
				t.Skipf("%s is not installed: %s is not tried", language, program)
			}
			journal := filepath.Join(t.TempDir(), "journal")
			url, _ := start(t, language, "../../examples/"+program, "127.0.0.1:0", journal)
			var fees []string
			for i, c := range [][2]string{{"", "1"}, {"", "1.1"}, {"", "1.21"}, {"", "1.331"}, {"7", "2"}} {
				fees = append(fees, offered(t, url, i+1, c[0], c[1]))
			}
			if got := strings.Join(fees, " "); got != "100 110 121 134 7" {
				t.Errorf("it offers %s", got)
			}
		})
	}
}

// offered dispatches an attempt to a worker and returns the fee of its answer.
func offered(t *testing.T, url string, attempt int, fee, factor string) string {
	t.Helper()
	body := fmt.Sprintf(`{"txData": {"uid": "u", "type": "PAY", "data": {"to": "ada", "cents": 1}},
		"sender": {"accountId": "a", "queue": "q", "retries": %d},
		"postern": {"token": "id.1.%[2]d", "attempt": %[2]d, "fence": 7, "position": 1, "fee": %[3]q,
			"fee_factor": %[4]q, "previous_hashes": []}}`, attempt-1, attempt, fee, factor)
	r, err := http.Post(url+"/dispatch/PAY", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var answer struct{ Fee string }
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil || r.StatusCode != 200 {
		t.Fatalf("attempt %d: %s %v", attempt, r.Status, err)
	}
	return answer.Fee
}

func TestTheExampleInNodeBelievesOnlyWhatIsSigned(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not installed: examples/worker.mjs is not tried")
	}
	key := []byte("0123456789abcdef0123456789abcdef")
	t.Setenv("WORKER_SECRET", "whsec_"+base64.StdEncoding.EncodeToString(key))
	url, _ := start(t, "node", "../../examples/worker.mjs", "127.0.0.1:0", filepath.Join(t.TempDir(), "ledger"))
	pass(t, verifyworker.Options{URL: url, Type: "PAY", Secret: key})
}

// overARestart has a program keep the contract, stops it, cuts a line of its journal off as a crash would, and has it
// keep the contract again. It returns the journal.
func overARestart(t *testing.T, o verifyworker.Options, language, program string) (journal string) {
	t.Helper()
	if _, err := exec.LookPath(language); err != nil {
		t.Skipf("%s is not installed: %s is not tried", language, filepath.Base(program))
	}
	journal = filepath.Join(t.TempDir(), "journal")
	url, stop := start(t, language, program, "127.0.0.1:0", journal)
	o.URL = url
	pass(t, o)
	stop()
	before, _ := os.ReadFile(journal)
	torn := append(before, `{"token": "cut off by a cra`...)
	if err := os.WriteFile(journal, torn, 0o600); err != nil {
		t.Fatal(err)
	}
	o.URL, stop = start(t, language, program, "127.0.0.1:0", journal)
	pass(t, o)
	stop()
	after, _ := os.ReadFile(journal)
	if !strings.HasPrefix(string(after), string(before)) || strings.Contains(string(after), "cut off by a cra") {
		t.Error("the restart lost what was written, or kept a line that was cut off")
	}
	return journal
}
