package bench

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/devpg"
	"github.com/postern-dev/postern/internal/pgtest"
)

func TestMain(m *testing.M) {
	devpg.MaybeChild()
	pgtest.Main(m)
}

// open makes a harness over a database of its own, whose processes run inside the test.
func open(t *testing.T) *Bench {
	t.Helper()
	b, err := Open(t.Context(), Config{Database: pgtest.New(t).URL, Launch: inside, Progress: func(line string) { t.Log(line) },
		Sizes: Sizes{Runs: 2, Queues: 20, Depth: 3, Connections: 4, Batch: 10, Length: 300 * time.Millisecond, Waiting: 30, Rate: 50, MessageRate: 200, Samples: 10, Processors: 5, Batches: 20, Events: 30,
			Finished: []int{40}, Behind: 80, Hold: 3 * time.Second, Free: 300 * time.Millisecond, Shapes: []string{"3x2", "senders"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// inside builds a process as part of this one.
func inside(ctx context.Context, p Part) (*Process, error) {
	switch p.Role {
	case RoleWorker:
		return serving(new(Nothing).Handler(), func() {}), nil
	case RolePlain:
		h, free, err := PlainHandler(ctx, p.Database)
		if err != nil {
			return nil, err
		}
		return serving(h, free), nil
	case RoleNoCommit:
		return serving(noCommit(), func() {}), nil
	}
	c, _, err := app.Load(app.Layers{Environ: map[string]string{"DATABASE_URL": p.Database, "POSTERN_LISTEN": "127.0.0.1:0"}, Defaults: app.DevDefaults})
	if err != nil {
		return nil, err
	}
	a, err := app.New(ctx, c, app.Role{Serve: p.Role != RoleWork, Work: p.Role != RoleServe}, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var ended chan error
	return &Process{URL: a.URL(), PID: os.Getpid(),
		Go: func() error {
			ended = make(chan error, 1)
			go func() { ended <- a.Run(running) }()
			return nil
		},
		Stop: func() error {
			stop()
			if ended == nil {
				a.Close()
				return nil
			}
			err := <-ended
			ended = nil
			return err
		}}, nil
}

// serving serves a handler.
func serving(h http.Handler, free func()) *Process {
	s := httptest.NewServer(h)
	return &Process{URL: s.URL, PID: os.Getpid(), Go: func() error { return nil }, Stop: func() error { s.Close(); free(); return nil }}
}

// noCommit answers 201 to every post.
func noCommit() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /transactions", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	return mux
}
