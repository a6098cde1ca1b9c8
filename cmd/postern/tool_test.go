package main

import (
	"bufio"
	"crypto/ed25519"
	"encoding/base64"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/remote"
)

// toolProcess starts a program that says "listening on ADDRESS", and returns its URL.
func toolProcess(t *testing.T, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	address, found := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !found {
		t.Fatalf("%s said %q, %v", filepath.Base(program), line, err)
	}
	return "http://" + address
}

// The tools of examples/, as processes of their own, registered by what they say of themselves and called over HTTP.
func TestToolsAreRegisteredAndTriedFromTheCommandLine(t *testing.T) {
	t.Parallel()
	program := example(t, "tool")
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	_, at := serving(t, append(database(pgtest.New(t).URL), "POSTERN_AUTH=none", "POSTERN_WORKER_ALLOW_CIDR=127.0.0.0/8", "POSTERN_SOURCE_SCHEMAS=public",
		"POSTERN_SIGNING_KEY=whsk_"+base64.StdEncoding.EncodeToString(key)), "serve", "--work")
	env := []string{at, "POSTERN_OUTPUT=table"}
	const add, shout = "xyz.postern.math.add@1", "xyz.postern.text.shout@1"
	url := toolProcess(t, program, "-fail", "1", "127.0.0.1:0")
	postern(t, env, "tool", "put", add, url, "--timeout", "10s", "--reason", "first").want(t, 0, "Adds two whole numbers.", "10s")
	postern(t, env, "tool", "invoke", add, `{"a": 1, "b": 2}`).want(t, 1, "the tool failed (HTTP 503): try again")
	postern(t, env, "tool", "invoke", add, `{"a": 1, "b": 2}`).want(t, 0, "ok", `"sum":3`)
	postern(t, env, "tool", "invoke", add, `{"a": 9223372036854775807, "b": 1}`).want(t, 0, "err", "beyond 64 bits")
	postern(t, env, "tool", "invoke", add, `{"a": 1}`).want(t, 1, "Input data does not match the input schema: the document: missing property 'b'")
	postern(t, env, "tool", "invoke", add, `{"a": 1`).want(t, 2, "this is no JSON")
	postern(t, env, "tool", "put", "xyz.postern.math.add@2", url).want(t, 1, "the tool's /meta: it is "+add+" by now, and not xyz.postern.math.add@2")
	postern(t, env, "tool", "put", "add", url).want(t, 1, "Invalid tool FQN format")
	postern(t, env, "tool", "put", add, url, "--definition", `{"input_schema": {"type": 7}, "output_schema": {"oneOf": [true]}}`).want(t, 1, "/input_schema/type")
	postern(t, env, "tool", "check", add).want(t, 0, "ready")
	postern(t, env, "tool", "refresh", add, "--reason", "deployed").want(t, 0, add)
	if said := postern(t, append(env, "COLUMNS=80"), "tool", "ls"); said.code != 0 || !strings.Contains(said.stdout, add) || !strings.Contains(said.stdout, "ready") {
		t.Errorf("%+v", said)
	} else {
		for _, line := range strings.Split(said.stdout, "\n") {
			if len([]rune(line)) > 80 {
				t.Errorf("a line of %d columns: %s", len([]rune(line)), line)
			}
		}
	}
	postern(t, []string{at}, "tool", "show", add, "-o", "json").want(t, 0, `"oneOf"`)
	postern(t, env, "show", "tools/"+add).want(t, 0, url)

	if python, err := exec.LookPath("python3"); err != nil {
		t.Log("python3 is not installed: examples/tool.py is not tried")
	} else {
		url := toolProcess(t, python, "../../examples/tool.py", "127.0.0.1:0")
		postern(t, env, "tool", "put", shout, url).want(t, 0, "Makes a text loud.")
		postern(t, env, "tool", "invoke", shout, `{"text": "hi"}`).want(t, 0, "HI!")
		postern(t, env, "tool", "invoke", shout, `{"text": ""}`).want(t, 0, "err_empty")
		postern(t, env, "tool", "invoke", shout, `{"text": "42"}`).want(t, 1, "Output data does not match the output schema: /ok/text: got number, want string")
		postern(t, env, "tool", "check", shout).want(t, 0, "ready")
		postern(t, env, "tool", "rm", shout).want(t, 0)
	}
	signed := toolProcess(t, program, "-key", remote.PublicKey(key), "127.0.0.1:0")
	postern(t, env, "tool", "put", add, signed, "--sign", "ed25519").want(t, 0, remote.PublicKey(key))
	postern(t, env, "tool", "invoke", add, `{"a": 1, "b": 2}`).want(t, 0, `"sum":3`)
	postern(t, env, "tool", "put", add, signed).want(t, 0)
	postern(t, env, "tool", "invoke", add, `{"a": 1, "b": 2}`).want(t, 1, "the tool refuses the call (HTTP 401): Content-Digest is not that of the body")
	postern(t, env, "tool", "put", add, signed, "--sign", "rsa").want(t, 1, "sign", "ed25519")

	postern(t, env, "source", "put", "orders", "--kind", "push", "--map", `{"fqn": "/tool"}`, "--buffer", "7").want(t, 0, "push", "7")
	postern(t, env, "source", "put", "calls", "--table", "public.calls", "--key", "id", "--map", `{"fqn": "/tool"}`).want(t, 1, "cursor")
	postern(t, env, "source", "put", "calls", "--table", "public.calls", "--key", "id", "--cursor", "id", "--settle", "0s", "--map", `{"fqn": "/tool"}`).want(t, 0, "postgres_table", "public.calls")
	postern(t, env, "source", "put", "calls", "--map", `{"fqn": "/tool"}`).want(t, 2, "want --kind, or --table")
	postern(t, env, "source", "pause", "calls", "--reason", "repaired").want(t, 0)
	postern(t, env, "source", "rewind", "calls", `{"at": "7"}`, "--reason", "late rows").want(t, 0)
	postern(t, env, "source", "show", "calls").want(t, 0, "paused", "at 7")
	postern(t, env, "source", "resume", "calls").want(t, 0)
	postern(t, env, "source", "ls").want(t, 0, "orders", "calls")
	postern(t, env, "source", "rm", "calls").want(t, 0)
	postern(t, env, "source", "show", "calls").want(t, 1, "no source")
	postern(t, env, "tool", "rm", add, "--reason", "replaced").want(t, 0)
	postern(t, env, "tool", "show", add).want(t, 1, "no tool")
	postern(t, []string{at}, "api", "GET", "/audit?object=/tools/"+add).want(t, 0, "first", "deployed", "replaced")
}

func TestThePageAboutToolsWorksAsItIsWritten(t *testing.T) {
	t.Parallel()
	program := example(t, "tool")
	_, port, _ := strings.Cut(freeAddress(t), ":")
	said := play(t, "leader.md", append(installation(t), "POSTERN_OUTPUT=json"), "go build -o bin/ ./examples/tool\n", "mkdir bin; ln -s "+program+" bin/tool\n",
		"127.0.0.1:9201", freeAddress(t), "127.0.0.1:9202", freeAddress(t), "9203", port)
	mustSay(t, said, `"variant":"ok"`, "HELLO!", "Output data does not match the output schema: /ok/text: got number, want string", `"status":"Dead"`, `"status":"Successful"`, `"retried":1`, "it has ended: Output data does not match", `"last_error":null`)
}
