package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/devpg"
)

// log are the lines of the log that a process has written.
func (p *process) log() (lines []map[string]any) {
	for l := range strings.Lines(p.stderr()) {
		var m map[string]any
		if json.Unmarshal([]byte(l), &m) == nil {
			lines = append(lines, m)
		}
	}
	return lines
}

// says waits until the process has logged a message that begins so, and returns the number of its line.
func (p *process) says(begin string) int {
	p.t.Helper()
	for end := time.Now().Add(90 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		for i, l := range p.log() {
			if message, _ := l["msg"].(string); strings.HasPrefix(message, begin) {
				return i
			}
		}
		if time.Now().After(end) {
			p.t.Fatalf("it did not say %q within 90 s:\n%s", begin, p.stderr())
		}
	}
}

// A PostgreSQL that is stopped and started again is told once each, by a process that serves, one that works, and one
// that does both: none of their loops writes a line meanwhile.
func TestAnOutageOfTheDatabaseIsToldOnce(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "postern-outage-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // the account that runs the server for root has to pass
		t.Fatal(err)
	}
	options := devpg.Options{StateDir: dir, Unsafe: true, BinDir: os.Getenv("POSTERN_PG_BIN")}
	server, err := devpg.Start(t.Context(), options)
	if err != nil {
		t.Skipf("a server of its own: %v", err)
	}
	if !strings.HasPrefix(server.DataDir, dir) {
		server.Close()
		t.Skipf("the data of the server are in %s, where others may use it", server.DataDir)
	}
	stop := func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { stop() })
	at := database(server.URL)
	postern(t, at, "migrate", "up").want(t, 0)
	env := append(at, "POSTERN_LOG_FORMAT=json", "POSTERN_METRICS_LISTEN=off", "POSTERN_AUTH=none",
		"POSTERN_LISTEN=127.0.0.1:0")
	processes := map[string]*process{
		"serve":        start(t, env, "serve"),
		"serve --work": start(t, env, "serve", "--work"),
		"work":         start(t, env, "work"),
	}
	for name, p := range processes {
		begins := map[string]string{"serve": "listening", "serve --work": "working", "work": "working"}
		p.says(begins[name])
	}
	time.Sleep(2 * time.Second) // their loops run

	stop()
	for _, p := range processes {
		p.says("the database does not answer")
	}
	time.Sleep(8 * time.Second) // each loop fails several times
	if server, err = devpg.Start(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	if database(server.URL)[0] != at[0] {
		t.Skip("the port was taken meanwhile")
	}
	for name, p := range processes {
		back := p.says("the database answers again")
		gone := p.says("the database does not answer")
		for _, l := range p.log()[gone+1 : back] {
			t.Errorf("%s: while the database is away it says %v", name, l)
		}
		for _, l := range p.log()[:gone] {
			if l["level"] != "INFO" && !strings.Contains(l["msg"].(string), "no signing key") &&
				!strings.Contains(l["msg"].(string), "no caller can get in") {
				t.Errorf("%s: before it says that the database is away it says %v", name, l)
			}
		}
		if l := p.log()[back]; l["away"] == nil || l["lines_left_out"] == nil {
			t.Errorf("%s: %v", name, l)
		}
	}
}
