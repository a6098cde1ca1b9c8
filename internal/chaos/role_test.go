package chaos

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/devnet/ledger"
	"github.com/postern-dev/postern/internal/devnetworker"
	"github.com/postern-dev/postern/internal/pg"
)

// Servers are this test binary too, by what roleEnv says. They get the socket that they listen on from the test, which
// keeps it open: a call that comes while there is no process waits for the next one.
const (
	roleEnv   = "POSTERN_CHAOS_ROLE"
	dirEnv    = "POSTERN_CHAOS_DIR"
	targetEnv = "POSTERN_CHAOS_TARGET"
)

// roles are the servers by their names.
var roles = map[string]func(ctx context.Context) (http.Handler, error){
	"ledger": func(ctx context.Context) (http.Handler, error) {
		l, err := ledger.Open(ledger.Config{Data: os.Getenv(dirEnv), BlockEvery: 60 * time.Millisecond})
		if err != nil {
			return nil, err
		}
		go func() { _ = l.Run(ctx) }()
		return l.Handler(), nil
	},
	"worker": func(context.Context) (http.Handler, error) {
		dir := os.Getenv(dirEnv)
		w, err := devnetworker.Open(devnetworker.Config{Ledger: os.Getenv(targetEnv), Keys: dir + "/keys",
			Data: dir + "/data", Auto: 1 << 40})
		if err != nil {
			return nil, err
		}
		return w.Handler(), nil
	},
	"sql": func(ctx context.Context) (http.Handler, error) {
		pool, err := pg.Connect(ctx, os.Getenv(targetEnv), 8)
		if err != nil {
			return nil, err
		}
		return sqlWorker{pool}, nil
	},
}

func runRole(role string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	l, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	h, err := roles[role](ctx)
	if err != nil {
		return err
	}
	return (&http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}).Serve(l)
}

// server is a role at an address that outlives its processes.
type server struct {
	*process
	t        *testing.T
	role     string
	url, dir string
	target   string
	listener *os.File
}

func startServer(t *testing.T, role, target string) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		t.Fatal(errors.New("no TCP listener"))
	}
	f, err := tcp.File()
	must(t, err)
	t.Cleanup(func() { f.Close(); l.Close() })
	s := &server{t: t, role: role, url: "http://" + l.Addr().String(), dir: t.TempDir(), target: target, listener: f}
	s.start()
	return s
}

// start starts its next process.
func (s *server) start() {
	s.t.Helper()
	exe, err := os.Executable()
	must(s.t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), roleEnv+"="+s.role, dirEnv+"="+s.dir, targetEnv+"="+s.target)
	cmd.ExtraFiles = []*os.File{s.listener}
	cmd.Stderr = s.t.Output()
	cmd.SysProcAttr = dieWithParent()
	must(s.t, cmd.Start())
	s.process = &process{cmd, s.role}
	s.t.Cleanup(s.kill)
}
