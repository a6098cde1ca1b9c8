package work

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/devpg"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/migrate"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/remotetest"
)

// TestNothingIsHandedBackWhileCommitsWait has all commits of two nodes wait for a standby that is away, for 20 s
// under load, while both compare what they hold with their rows all the time. When it is over everything goes on:
// nothing was handed back, and no token called twice.
func TestNothingIsHandedBackWhileCommitsWait(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server, err := devpg.Start(ctx, devpg.Options{Ephemeral: true, Unsafe: true, BinDir: os.Getenv("POSTERN_PG_BIN")})
	must(t, err)
	t.Cleanup(func() { _ = server.Close() })
	must(t, migrate.Up(ctx, server.URL, nil))
	fake := remotetest.NewFake(t)
	fake.Script(remotetest.Match{Op: remotetest.OpDispatch}, remotetest.Done("ok").Slow(300*time.Millisecond))
	s := comparingNode(t, server.URL, "taker")
	comparingNode(t, server.URL, "other")
	by := db.By{Context: s.Context("default").ID, Actor: "test", Via: "test"}
	d := outbox.DefaultDispatcher()
	d.Type, d.WorkerURL = "T", fake.URL()
	_, err = s.PutDispatcher(ctx, by, d, 0)
	must(t, err)

	stop, posted := make(chan struct{}), make(chan int, 8)
	for g := range 8 {
		go func() {
			n := 0
			defer func() { posted <- n }()
			for {
				select {
				case <-stop:
					return
				case <-ctx.Done():
					return
				case <-time.After(20 * time.Millisecond): // fewer than the worker manages
				}
				uid := fmt.Sprintf("%d-%d", g, n)
				out, err := s.Ingest(ctx, []*pg.Submission{{ContextID: by.Context,
					Queue: fmt.Sprintf("q%d-%d", g, n%64), Type: "T", UID: uid,
					Hash: []byte(uid), Data: []byte(`{}`)}}, false)
				if err == nil && out[0].Err == nil {
					n++
				}
			}
		}()
	}
	admin, err := pg.Connect(ctx, server.URL, 1)
	must(t, err)
	t.Cleanup(admin.Close)
	standby := func(names string) {
		t.Helper()
		_, err := admin.Exec(ctx, `ALTER SYSTEM SET synchronous_standby_names = '`+names+`'`)
		must(t, err)
		_, err = admin.Exec(ctx, `SELECT pg_reload_conf()`)
		must(t, err)
	}
	time.Sleep(2 * time.Second)
	standby("nobody")
	waiting := 0
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Second) {
		var n int
		must(t, admin.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`).Scan(&n))
		waiting = max(waiting, n)
	}
	standby("")
	time.Sleep(time.Second)
	close(stop)
	all := 0
	for range 8 {
		all += <-posted
	}
	var open, done, back int
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		must(t, admin.QueryRow(ctx, `SELECT count(*) FILTER (WHERE state = 'DONE'), count(*) FILTER (WHERE done_at IS NULL) FROM postern.transactions`).Scan(&done, &open))
		if open == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d have not ended", open)
		}
	}
	must(t, admin.QueryRow(ctx, `SELECT count(*) FROM postern.attempt`).Scan(&back))
	if waiting == 0 || done < all || back > 0 {
		t.Errorf("%d commits waited at once; %d were acknowledged, %d are DONE; %d calls were given up or made again",
			waiting, all, done, back)
	}
	calls := map[string]int{}
	for _, c := range fake.Calls(remotetest.Match{Op: remotetest.OpDispatch}) {
		if calls[c.Token]++; calls[c.Token] > 1 {
			t.Errorf("%s was called %d times", c.Token, calls[c.Token])
		}
	}
	t.Logf("%d commits waited at once; %d were acknowledged, %d tokens", waiting, all, len(calls))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%+v", err)
	}
}

// comparingNode runs an engine until the test ends that compares all the time, and returns its store.
func comparingNode(t *testing.T, url, name string) *stores.Store {
	t.Helper()
	pool, err := pg.Connect(t.Context(), url, 10)
	must(t, err)
	t.Cleanup(pool.Close)
	s, err := stores.Open(t.Context(), pool, slog.New(slog.DiscardHandler))
	must(t, err)
	client := remotetest.Client(t)
	e := New(Config{
		Store:    s,
		Worker:   remote.Mux{Next: client},
		NodeName: name,
		TTL:      10 * time.Second, // as users have it: shorter than the commits wait
		Log:      slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	e.Add(NewDeliveries(e, DeliveriesConfig{Webhook: client.Webhook}).System())
	e.compareEvery = 10 * time.Millisecond
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		if err := e.Run(ctx); err != nil {
			t.Errorf("engine %s: %v", name, err)
		}
	})
	t.Cleanup(func() { stop(); all.Wait() })
	return s
}
