package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A process of the sandbox initialises the standard library and the sandbox, and none of what makes a start slow: each
// script starts two of them.
func TestAProcessOfTheSandboxStartsFast(t *testing.T) {
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), "POSTERN_SANDBOX_STAGE=init", "GODEBUG=inittrace=1")
	out, _ := cmd.CombinedOutput() // it has no order, and fails
	trace := string(out)
	if !strings.Contains(trace, "init runtime ") || strings.Contains(trace, "usage") {
		t.Fatalf("not a trace of a process of the sandbox: %s", trace)
	}
	const ours = "github.com/postern-dev/postern/internal/"
	for _, slow := range []string{ours + "ui", ours + "httpapi", ours + "pg",
		"github.com/santhosh-tekuri/jsonschema/v6", "github.com/prometheus/client_golang/prometheus"} {
		if strings.Contains(trace, "init "+slow+" @") {
			t.Errorf("it initialises %s: has internal/sandbox imports of its own, or was it renamed?", slow)
		}
	}
}
