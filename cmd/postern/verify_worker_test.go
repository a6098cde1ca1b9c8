package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/remotetest"
	"github.com/postern-dev/postern/internal/verifyworker"
)

func TestVerifyWorkerReportsAndItsExitCodeSaysHowItWent(t *testing.T) {
	t.Parallel()
	good := remotetest.NewFake(t)
	good.Fencing(true)
	good.IncludeAll(true)
	bad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "hello")
	}))
	defer bad.Close()
	const gone = "http://127.0.0.1:1" // the kernel gives port 1 to no process that asks for any
	for _, tc := range []struct {
		args []string
		exit int
		out  string
		errs string
	}{
		{[]string{bad.URL, "-o", "table"}, exitBad, "docs/worker-contract.md, paragraph 4.1", "checks failed"},
		{[]string{bad.URL, "-o", "table"}, exitBad, "In production: Nothing goes out", "checks failed"},
		{[]string{gone}, exitUnreachable, "", "nothing listens"},
		{[]string{"worker:9000"}, exitUsage, "", "want http(s)://"},
		{[]string{bad.URL, "--data", "{"}, exitUsage, "", "no JSON"},
		{nil, exitUsage, "", "postern verify-worker wants URL"},
	} {
		cmd := root()
		var out, errs bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(&errs)
		cmd.SetArgs(append([]string{"verify-worker"}, tc.args...))
		ran, err := cmd.ExecuteContextC(t.Context())
		if exit := report(ran, err); exit != tc.exit || !strings.Contains(out.String(), tc.out) ||
			!strings.Contains(errs.String(), tc.errs) {
			t.Errorf("%v: exit %d, want %d\n%s\n%s", tc.args, exit, tc.exit, &out, &errs)
		}
	}

	cmd := root()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"verify-worker", good.URL(), "-o", "json"})
	err := cmd.ExecuteContext(t.Context())
	var r verifyworker.Report
	if json.Unmarshal(out.Bytes(), &r) != nil || len(r.Checks) < 20 || r.URL != good.URL() ||
		r.Type != "VERIFY" || r.OK != (err == nil) {
		t.Errorf("%v\n%s", err, &out)
	}
	for _, c := range r.Checks { // the fake is no worker for production: it takes garbage of any size
		if c.State == verifyworker.Failed && c.Name != "garbage" && c.Name != "oversized" {
			t.Errorf("%+v", c)
		}
	}
}
