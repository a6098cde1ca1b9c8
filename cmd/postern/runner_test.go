package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// runnerProcess is the program as a runner, with a state directory that every user may pass.
func runnerProcess(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	state := t.TempDir()
	for at := state; at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
		os.Chmod(at, 0o711)
	}
	cmd := exec.Command(binary, append([]string{"runner", "--state", state, "--log-format", "json"}, args...)...)
	cmd.Env = append(os.Environ(), "SECRET_OF_THE_RUNNER=x")
	return cmd
}

// runs starts the program as a runner of an installation, and returns what it logs.
func runs(t *testing.T, api string, args ...string) (cmd *exec.Cmd, log *bytes.Buffer) {
	t.Helper()
	cmd = runnerProcess(t, append([]string{"--url", api, "--isolation", "off"}, args...)...)
	log = &bytes.Buffer{}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return cmd, log
}

// calls sends a request to an installation and reads its answer.
func calls(t *testing.T, status int, method, url, body string) map[string]any {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var v map[string]any
	if err := json.NewDecoder(res.Body).Decode(&v); err != nil || res.StatusCode != status {
		t.Fatalf("%s %s: %d, want %d: %v %v", method, url, res.StatusCode, status, v, err)
	}
	return v
}

// jobEnds waits for the end of a job.
func jobEnds(t *testing.T, api string, job map[string]any) map[string]any {
	t.Helper()
	for range 4 {
		v := calls(t, 200, "GET", fmt.Sprint(api, "/jobs/", job["id"], "?wait=30s"), "")
		if v["ended_at"] != nil {
			return v
		}
	}
	t.Fatalf("job %v has not ended", job["id"])
	return nil
}

// A runner is a process of its own, which needs nothing but HTTP to a server. One that is killed leaves its job to
// another, which is handed the same token.
func TestRunnersExecuteTheJobsOfAServer(t *testing.T) {
	if out, err := runnerProcess(t, "--url", "http://127.0.0.1:1", "--types", "sal").CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "sal") {
		t.Errorf("a runner that can execute nothing: %v %s", err, out)
	}
	_, _, api := developing(t)
	calls(t, 201, "PUT", api+"/runners/killed", `{"slots": 1, "ttl": "3s"}`)
	killed, _ := runs(t, api, "--name", "killed", "--types", "python,sal")
	job := calls(t, 201, "POST", api+"/jobs", `{"script_type": "python", "timeout": 60, "env_vars": {"A": "1"},
		"script": "import json, os\nprint(sorted(n for n in os.environ if 'SECRET' in n))`+
		`\njson.dump({'a': os.environ['A']}, open(os.environ['POSTERN_RESULT'], 'w'))"}`)
	v := jobEnds(t, api, job)
	if v["status"] != "finished" || fmt.Sprint(v["result"]) != "map[a:1]" || v["runner"] != "killed" {
		t.Fatalf("%v", v)
	}
	logs := calls(t, 200, "GET", fmt.Sprint(api, "/jobs/", job["id"], "/logs"), "")
	if !strings.Contains(fmt.Sprint(logs), "text:[]") {
		t.Errorf("the runner's environment, or no output: %v", logs)
	}
	r := calls(t, 200, "GET", api+"/runners/killed", "")
	if fmt.Sprint(r["able"]) != "[python]" || !strings.Contains(fmt.Sprint(r["missing"]), "sal") {
		t.Errorf("it registered as %v", r)
	}
	job = calls(t, 201, "POST", api+"/jobs", `{"script_type": "python",
		"script": "import os, time\nprint(os.environ['POSTERN_TOKEN'], flush=True)\ntime.sleep(4)"}`)
	held := func() bool {
		v := calls(t, 200, "GET", fmt.Sprint(api, "/jobs/", job["id"], "/logs"), "")
		return len(v["items"].([]any)) > 0
	}
	for end := time.Now().Add(time.Minute); !held(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the job does not start")
		}
	}
	killed.Process.Kill()
	heir, _ := runs(t, api, "--name", "heir")
	v = jobEnds(t, api, job)
	tries := calls(t, 200, "GET", fmt.Sprint(api, "/jobs/", job["id"], "/tries"), "")["items"].([]any)
	first := tries[0].(map[string]any)
	if v["status"] != "finished" || v["runner"] != "heir" || len(tries) != 1 || first["lapses"] != 1.0 {
		t.Errorf("%v\n%v", v, tries)
	}
	if got := fmt.Sprint(v["result"]); !strings.Contains(got, fmt.Sprint(first["token"])) {
		t.Errorf("the token of %v is not in %s", first, got)
	}
	heir.Process.Signal(syscall.SIGTERM)
	if err := heir.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

// losesAnswers is an address in front of the API that passes requests on, and breaks off instead of answering.
func losesAnswers(t *testing.T, api string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		out, err := http.NewRequestWithContext(r.Context(), r.Method, api+r.URL.Path, r.Body)
		if err == nil {
			out.Header = r.Header
			res, failed := http.DefaultClient.Do(out)
			if err = failed; err == nil {
				res.Body.Close()
			}
		}
		if err != nil {
			t.Error(err)
		}
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// What people do with jobs and flows is done with the command alone: a script is run to its exit code, a flow to its
// result.
func TestScriptsAndFlowsAreRunByCommands(t *testing.T) {
	_, _, api := developing(t)
	runs(t, api, "--name", "r", "--slots", "2")
	at := []string{"POSTERN_URL=" + api}
	dir := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	good := file("good.py", "import os\nprint('hello', os.environ['A'])")
	postern(t, at, "run", good, "--env", "A=1", "--wait", "2m").want(t, 0, "hello 1")
	bad := file("bad.py", "import sys\nprint('oh', file=sys.stderr)\nsys.exit(3)")
	postern(t, at, "run", bad, "--wait", "2m").want(t, 3, "oh")
	postern(t, at, "run", file("x", "1")).want(t, 2, "--type")

	lost := []string{"POSTERN_URL=" + losesAnswers(t, api)}
	if r := postern(t, lost, "run", good, "--env", "A=1", "--key", "once"); r.code == 0 {
		t.Errorf("an answer that was lost came: %s", r.stdout)
	}
	postern(t, at, "run", good, "--env", "A=1", "--key", "once", "--wait", "2m").want(t, 0, "hello 1")
	if n := len(calls(t, 200, "GET", api+"/jobs", "")["items"].([]any)); n != 3 {
		t.Errorf("there are %d jobs, want the two without a key and the one with it", n)
	}
	postern(t, at, "run", bad, "--key", "once").want(t, 1, "names job", "another --key")

	diamond := file("flow.json", `{"jobs": [
		{"ref": 1, "script_type": "python", "script": "print(1)"},
		{"ref": 2, "script_type": "python", "dependends": [1], "prerequisites": ["ok"],
			"script": "import os, json\nprint(json.load(open(os.environ['POSTERN_INPUTS'])))"},
		{"ref": 3, "script_type": "python", "dependends": [1], "script": "print(3)"},
		{"ref": 4, "script_type": "python", "dependends": [2, 3], "script": "print(4)"}]}`)
	r := postern(t, at, "flow", "submit", diamond, "--key", "diamond")
	r.want(t, 0, "dispatched")
	id, _, _ := strings.Cut(r.stdout, " ")
	postern(t, at, "flow", "submit", diamond, "--key", "diamond").want(t, 0, id)
	postern(t, at, "flow", "start", id).want(t, 0, "changed=yes")
	f := calls(t, 200, "GET", api+"/flows/"+id, "")
	two := fmt.Sprint(f["jobs"].([]any)[1].(map[string]any)["id"])
	postern(t, at, "job", "met", two, "ok", "--reason", "seen").want(t, 0, "changed=yes")
	postern(t, at, "job", "logs", two, "-f").want(t, 0, "{'1': {'stdout': '1")
	for range 60 {
		if f = calls(t, 200, "GET", api+"/flows/"+id+"?wait=1s", ""); f["ended_at"] != nil {
			break
		}
	}
	if f["status"] != "finished" || !strings.Contains(fmt.Sprint(f["result"]), "4.stdout:4") {
		t.Errorf("%v", f)
	}
	postern(t, at, "flow", "dag", id).want(t, 0, "flowchart LR", "j1 --> j2", "4 python: finished")

	failing := file("failing.json", `{"jobs": [{"ref": 1, "script_type": "python", "script": "print(1)"},
		{"ref": 2, "script_type": "python", "script": "1/0", "dependends": [1]}]}`)
	r = postern(t, at, "flow", "submit", failing, "--start", "--wait", "2m")
	r.want(t, 1, "job 2 failed")
	id, _, _ = strings.Cut(r.stdout, " ")
	mended := file("mended.json", `{"jobs": [
		{"ref": 2, "script_type": "python", "script": "print(2)", "dependends": [1]}]}`)
	postern(t, at, "flow", "redrive", id, "--file", mended, "--wait", "2m").want(t, 0, "finished")
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
