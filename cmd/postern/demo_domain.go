package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/demo"
	"github.com/postern-dev/postern/internal/devpg"
)

// runDomain runs the demo of a domain, with other installations that are processes of their own.
func runDomain(ctx context.Context, cmd *cobra.Command, c demo.Config) (*demo.Summary, error) {
	cfg, _, err := settings(cmd, devDefaults())
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "postern-nodes-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	server, err := devpg.Start(ctx, devpg.Options{
		BinDir:        cfg.PGBin,
		AllowDownload: cfg.PGDownload,
		Ephemeral:     true,
		Log:           func(string) {},
	})
	if err != nil {
		return nil, fmt.Errorf("start a PostgreSQL for the other installations: %w", err)
	}
	n := &demoNodes{dir: dir, server: server, databases: map[string]string{}, running: map[string]*app.Child{}}
	defer n.stop()
	c.StartNode = n.start
	return demo.RunDomain(ctx, c)
}

// demoNodes are other installations: each a process of this program with a database of its own. They end with us,
// however we end.
type demoNodes struct {
	dir       string
	server    *devpg.Server
	databases map[string]string // by name
	running   map[string]*app.Child
}

// nodeWithin is how long an installation may take to start: it brings an empty database to the newest migration.
const nodeWithin = 2 * time.Minute

// start starts an installation, or starts one again that was killed: its database is the same. What it logs is in a
// file, which is told of if it does not start.
func (n *demoNodes) start(ctx context.Context, name string) (api string, kill func(), err error) {
	if n.databases[name] == "" {
		if n.databases[name], err = app.DatabaseBeside(ctx, n.server.URL, name); err != nil {
			return "", nil, err
		}
	}
	at := filepath.Join(n.dir, name+".log")
	log, err := os.OpenFile(at, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return "", nil, err
	}
	defer log.Close()
	child, err := app.NewChild(ctx, log, nodeWithin, "dev", "--attached", "--yes", "--database-url", n.databases[name],
		"--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--ui", "off", "-o", "json")
	if err != nil {
		said, _ := os.ReadFile(at) // nothing, if it cannot be read
		return "", nil, fmt.Errorf("%w:\n%s", err, said)
	}
	n.running[name] = child
	var line struct{ API string }
	if json.Unmarshal([]byte(child.Line), &line) != nil || line.API == "" {
		return "", nil, fmt.Errorf("the installation %s printed %q: want its address", name, child.Line)
	}
	return line.API, child.Kill, nil
}

// stop ends all installations, and their PostgreSQL.
func (n *demoNodes) stop() {
	for _, child := range n.running {
		child.Stop()
	}
	n.server.Close()
}
