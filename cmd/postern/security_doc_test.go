package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/pgtest"
)

// The blocks of docs/security.md are run one after the other, as a reader would.
func TestTheBlocksOfTheSecurityPageDoWhatItSays(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"curl", "psql", "bash", "sed"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed, so the blocks of docs/security.md are not run: apt-get install curl postgresql-client", tool)
		}
	}
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 8 {
		t.Fatalf("the page has %d blocks of shell", len(blocks))
	}
	db, dir := pgtest.Empty(t).URL, t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0") // the page's port may be taken here
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	if err := os.Symlink(binary, filepath.Join(dir, "postern")); err != nil {
		t.Fatal(err)
	}
	script := "trap 'kill $(jobs -p) 2>/dev/null' EXIT\n"
	for _, b := range blocks {
		script += b[1] + "echo ====\n"
	}
	script = strings.ReplaceAll(script, "http://127.0.0.1:8080", "http://"+address)
	if !strings.Contains(script, address) {
		t.Fatal("the page does not say where the API is")
	}
	t.Cleanup(func() { onServer(t, db, "DROP ROLE IF EXISTS shop_app") }) // roles belong to the server
	limit, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(limit, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	cmd.Env = append(os.Environ(), "DATABASE_URL="+db, "PATH="+dir+":"+os.Getenv("PATH"),
		"POSTERN_LISTEN="+address, "POSTERN_METRICS_LISTEN=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	said := strings.Split(string(out), "====\n")
	for block, want := range map[int][]string{
		1: {"shop", "executor", "reader"},
		2: {`"state":"DONE"`, "403\n404\n"},
		3: {"admin", "403\n", "DONE"},
		4: {"executor"},
		5: {"NAME"},
		6: {`"action":"rotate"`, "till was replaced", `"action":"delete"`},
		7: {"p-2", "p-1 | DONE"},
	} {
		for _, w := range want {
			if !strings.Contains(said[block], w) {
				t.Errorf("block %d does not say %q:\n%s", block, w, said[block])
			}
		}
	}
	if strings.Contains(string(out), "postern_") && regexp.MustCompile(`postern_[a-z0-9]{8}_[a-z0-9]{40}`).Match(out) {
		t.Errorf("a secret is shown:\n%s", out)
	}
}
