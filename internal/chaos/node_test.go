package chaos

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/work"
)

// A node is this test binary, started once more with the database in its environment.
const (
	nodeEnv = "POSTERN_CHAOS_DATABASE"
	nameEnv = "POSTERN_CHAOS_NODE"
	ttlEnv  = "POSTERN_CHAOS_TTL" // of its leases; ttl unless it is said
)

// ttl of the leases in these tests: recovery is ttl + 1 s.
const ttl = 2 * time.Second

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		if err := runRole(role); err != nil {
			fmt.Fprintln(os.Stderr, role, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if url := os.Getenv(nodeEnv); url != "" {
		if err := runNode(url, os.Getenv(nameEnv)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	pgtest.Main(remover{m})
}

// runNode is the life of a node process: it dispatches until SIGTERM.
func runNode(url, name string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	pool, err := pg.Connect(ctx, url, 12)
	if err != nil {
		return err
	}
	defer pool.Close()
	s, err := stores.Open(ctx, pool, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	return newEngine(s, name).Run(ctx)
}

// newEngine makes a node that works on a store.
func newEngine(s *stores.Store, name string) *work.Engine {
	lease := ttl
	if d, err := time.ParseDuration(os.Getenv(ttlEnv)); err == nil {
		lease = d
	}
	client := remote.New(remote.Config{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	e := work.New(work.Config{
		Store:    s,
		Worker:   remote.Mux{Next: client},
		NodeName: name,
		TTL:      lease,
		Grace:    2 * time.Second,
		Log:      slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	e.Add(
		work.NewDeliveries(e, work.DeliveriesConfig{Webhook: client.Webhook}).System(),
		work.NewEvents(e, work.EventsConfig{Fetch: client.Fetch, Tools: client}).System(),
		work.NewBatches(e).System(),
		work.NewChannels(e).System(),
	)
	return e
}

// engine runs a node in this process until the test ends, and returns its store.
func engine(t *testing.T, url, name string) *stores.Store {
	t.Helper()
	pool, err := pg.Connect(t.Context(), url, 10)
	must(t, err)
	t.Cleanup(pool.Close)
	s, err := stores.Open(t.Context(), pool, slog.New(slog.DiscardHandler))
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- newEngine(s, name).Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("engine %s: %v", name, err)
		}
	})
	return s
}

// process is a running node.
type process struct {
	cmd  *exec.Cmd
	name string
}

func startNode(t *testing.T, url, name string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), nodeEnv+"="+url, nameEnv+"="+name)
	cmd.Stderr = t.Output()
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd, name}
	t.Cleanup(func() { p.kill() })
	return p
}

// kill ends the process as kill -9 does, and waits until it is gone.
func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}
