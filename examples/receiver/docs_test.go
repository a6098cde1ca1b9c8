package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var block = regexp.MustCompile("(?s)\n```sh\n(.*?)```\n")

// The page's command blocks are run one after the other, as a reader would, against the real thing.
func TestThePageAboutWebhooksWorksAsItIsWritten(t *testing.T) {
	for _, tool := range []string{"bash", "curl", "psql", "sed"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the page needs %s: %v", tool, err)
		}
	}
	page, err := os.ReadFile("../../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	db := pgtest.New(t)
	c, _, err := app.Load(app.Layers{Environ: map[string]string{"DATABASE_URL": db.URL, "POSTERN_LISTEN": "127.0.0.1:0",
		"POSTERN_METRICS_LISTEN": "off"}, Defaults: app.DevDefaults})
	if err != nil {
		t.Fatal(err)
	}
	a, err := app.New(t.Context(), c, app.Role{Serve: true, Work: true, Version: "test"},
		slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	dir := t.TempDir()
	receiver := filepath.Join(dir, "receiver")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", dir, ".",
		"../../cmd/postern").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // the page's port may be taken here
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	script := "set -e -o pipefail\ntrap 'kill $(jobs -p) 2>/dev/null' EXIT\n"
	for _, b := range block.FindAllSubmatch(page, -1) {
		script += string(b[1])
	}
	if n := len(block.FindAll(page, -1)); n < 8 {
		t.Fatalf("only %d blocks were found", n)
	}
	for _, change := range [][2]string{{"127.0.0.1:9797", address},
		{"go run ./examples/receiver", receiver + " -listen " + address}} {
		if !strings.Contains(script, change[0]) {
			t.Fatalf("the page does not say %s", change[0])
		}
		script = strings.ReplaceAll(script, change[0], change[1])
	}
	limit, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(limit, "bash", "-x", "-c", script)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "DATABASE_URL="+db.URL,
		"POSTERN_URL="+a.URL())
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		heard, _ := os.ReadFile(filepath.Join(dir, "heard.txt"))
		t.Fatalf("%v\n%s\nheard: %s", err, out, heard)
	}
	heard, err := os.ReadFile(filepath.Join(dir, "heard.txt"))
	if err != nil || !strings.HasPrefix(string(heard), "subscription.test   \n") {
		t.Errorf("%v %s", err, heard)
	}
}
