package main

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// readme is the page whose commands are run here.
func readme(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestTheCommandsOfTheReadmeExist(t *testing.T) {
	t.Parallel()
	text := readme(t)
	for _, m := range regexp.MustCompile("`(?:go run \\./cmd/)?postern ([a-z-]+)[^`]*`").FindAllStringSubmatch(text, -1) {
		if c, _, err := root().Find([]string{m[1]}); err != nil || c.Name() != m[1] {
			t.Errorf("README.md speaks of %s, which is no command: %v", m[0], err)
		}
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := regexp.MustCompile("(?m)(?:^    |`)make ([a-z]+)").FindAllStringSubmatch(text, -1)
	if len(targets) < 3 {
		t.Fatalf("README.md names the targets %v", targets)
	}
	for _, m := range targets {
		if !strings.Contains(string(makefile), "\n"+m[1]+": ") {
			t.Errorf("README.md says `make %s`, which the Makefile does not have", m[1])
		}
	}
	for _, m := range regexp.MustCompile("POSTERN_[A-Z_]+").FindAllString(text, -1) {
		if m != "POSTERN_URL" && !strings.Contains(string(help(t, "postern config")), "("+m+")") {
			t.Errorf("README.md speaks of %s, which is no setting", m)
		}
	}
	for _, m := range regexp.MustCompile(`\]\(([^)#]+)\)`).FindAllStringSubmatch(text, -1) {
		if _, err := os.Stat("../../" + m[1]); err != nil {
			t.Errorf("README.md links to %s: %v", m[1], err)
		}
	}
}

func TestTheLinesOfTheReadmeDoWhatItSays(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"curl", "psql", "bash"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed, so the README's lines are not run: apt-get install curl postgresql-client", tool)
		}
	}
	p, database, api := developing(t)
	run := func(script string) string {
		script = strings.ReplaceAll(script, "http://127.0.0.1:8080", api)
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
		cmd.Env = append(os.Environ(), "DATABASE_URL="+database)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s\n%s", err, script, out)
		}
		return string(out)
	}

	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(readme(t), -1)
	if len(blocks) != 1 {
		t.Fatalf("README.md has %d blocks of shell, want the one that posts", len(blocks))
	}
	out := run(blocks[0][1])
	dec := json.NewDecoder(strings.NewReader(out))
	var kinds []map[string]any
	for dec.More() {
		var v map[string]any
		if err := dec.Decode(&v); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		kinds = append(kinds, v)
	}
	if len(kinds) != 3 || kinds[0]["type"] != "HELLO" || kinds[1]["state"] != "DONE" || kinds[1]["uid"] != "hello-1" || kinds[2]["name"] != "greetings" {
		t.Errorf("the lines answer\n%s", out)
	}
	lines := regexp.MustCompile("(?m)^    ((?:curl|psql) .*)$").FindAllStringSubmatch(readme(t), -1)
	if len(lines) < 3 {
		t.Fatalf("README.md has the lines %v to look around with", lines)
	}
	for _, l := range lines {
		out := run(l[1])
		if strings.HasPrefix(l[1], "psql") && !strings.Contains(out, "hello-1") || strings.HasPrefix(l[1], "curl") && !strings.Contains(out, `"items"`) {
			t.Errorf("%s\nanswers\n%s", l[1], out)
		}
	}
	call(t, http.MethodGet, api+"/readyz", "", 200, nil)
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("dev ended with %d", code)
	}
}
