package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/verifyworker"
)

// The example in Python keeps the contract, as the one in Go does on the page about domains. A service that breaks it
// is found.
func TestVerifyDomainReportsWhatAServiceDoesNotKeep(t *testing.T) {
	t.Parallel()
	calls := 0
	bad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls++
		_, _ = io.WriteString(w, `{"result": "OK", "assembled": `+string(rune('0'+calls%10))+`}`)
	}))
	defer bad.Close()
	postern(t, nil, "verify-domain", bad.URL, "-o", "table").want(t, exitBad, "one key has two answers",
		"checks failed")
	postern(t, nil, "verify-domain", "http://127.0.0.1:1").want(t, exitUnreachable, "cannot be called")
	postern(t, nil, "verify-domain", "service:9000").want(t, exitUsage, "want http(s)://")
	postern(t, nil, "verify-domain", bad.URL, "--party", "ann").want(t, exitUsage, "want name@node")

	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	at := freeAddress(t)
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "../../examples/domain.py", port)
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if res, err := http.Get("http://" + at + "/health"); err == nil {
			res.Body.Close()
			break
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	r := postern(t, nil, "verify-domain", "http://"+at, "--data", `{"text": "hello"}`, "--types", "NOTE", "-o",
		"json")
	var report verifyworker.Report
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil || r.code != 0 || len(report.Checks) < 8 {
		t.Fatalf("%v %s %s", err, r.stdout, r.stderr)
	}
	for _, c := range report.Checks {
		want := verifyworker.OK
		if c.Name == "look" || c.Name == "height" {
			want = verifyworker.NotOffered
		}
		if c.State != want {
			t.Errorf("%+v", c)
		}
	}
}
