package app_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/remotetest"
)

// A request whose handler breaks off gets no answer, and one whose answer is larger than what the node takes is told
// so. Both cost nothing else: the next is answered. A process that stops answers what it has taken.
func TestEachRequestOverMyceliumIsAnsweredByItself(t *testing.T) {
	t.Parallel()
	network := remotetest.NewMycelium(t)
	near, far := network.Node(), network.Node()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	begun, goOn := make(chan struct{}), make(chan struct{})
	door := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch first := strings.Split(r.URL.Path, "/")[1]; first {
		case "aborts":
			panic(http.ErrAbortHandler)
		case "panics":
			panic("a fault of the handler")
		case "large":
			_, _ = w.Write([]byte(strings.Repeat("x", 3<<20)))
		case "slow":
			close(begun)
			<-goOn
		}
		w.WriteHeader(http.StatusNoContent)
	})
	ended := make(chan error, 1)
	go func() { ended <- app.Courier(ctx, far.URL(), door, slog.New(slog.DiscardHandler)) }()

	ask := func(path string) (int, string) {
		return overTheNet(t, near, far.Key, map[string]any{"method": "GET", "path": path})
	}
	client := near.Client(t)
	for _, path := range []string{"/aborts", "/panics"} {
		call := remotetest.Call(far.Worker()+path, 1)
		call.Timeout = 300 * time.Millisecond
		if a := client.Dispatch(t.Context(), call); a.Class != "ambiguous" {
			t.Errorf("%s: %+v", path, a)
		}
	}
	if status, body := ask("/large"); status != 502 || !strings.Contains(body, "larger") {
		t.Errorf("a large answer: %d %s", status, body)
	}
	large := map[string]any{"method": "GET", "path": "/", "headers": map[string][]string{
		"Webhook-Signature": {strings.Repeat("AAAA ", 4<<10)}}}
	if status, body := overTheNet(t, near, far.Key, large); status != 400 || !strings.Contains(body, "16384 bytes") {
		t.Errorf("large headers: %d %s", status, body)
	}
	if status, _ := ask("/other"); status != 204 {
		t.Errorf("the next one: %d", status)
	}
	var slow sync.WaitGroup
	slow.Go(func() {
		if status, body := ask("/slow"); status != 204 {
			t.Errorf("one that was taken before the end: %d %s", status, body)
		}
	})
	<-begun
	stop()
	select {
	case <-ended:
		t.Error("it has ended before all was answered")
	case <-time.After(300 * time.Millisecond):
	}
	close(goOn)
	slow.Wait()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A key that calls more often than is answered at once has each call answered, none of them by a refusal, while very
// many of its questions wait for news.
func TestCallsOfOneKeyHaveTheirTurns(t *testing.T) {
	t.Parallel()
	network := remotetest.NewMycelium(t)
	near, far := network.Node(), network.Node()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	const polls, calls = 40, 70
	var now, most atomic.Int32
	news := make(chan struct{})
	door := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/follow") {
			<-news
		} else {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(20 * time.Millisecond)
			now.Add(-1)
		}
		w.WriteHeader(http.StatusNoContent)
	})
	ended := make(chan error, 1)
	go func() { ended <- app.Courier(ctx, far.URL(), door, slog.New(slog.DiscardHandler)) }()
	var asks, brings sync.WaitGroup
	ask := func(path string) {
		if status, body := overTheNet(t, near, far.Key, map[string]any{"method": "POST", "path": path}); status != 204 {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	for range polls {
		asks.Go(func() { ask("/contexts/c/peers/p/follow") })
	}
	for range calls {
		brings.Go(func() { ask("/contexts/c/peers/p/messages") })
	}
	brings.Wait()
	if n := most.Load(); n > 24 {
		t.Errorf("%d were answered at once", n)
	}
	close(news)
	asks.Wait()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A node that is away is told of once, however often it is asked, and takes its part again when it is back.
func TestANodeOfMyceliumMayBeAwayForAWhile(t *testing.T) {
	t.Parallel()
	network := remotetest.NewMycelium(t)
	near, far := network.Node(), network.Node()
	var logged atomic.Int32
	var away atomic.Bool
	away.Store(true)
	far.Instead(func(w http.ResponseWriter, _ *http.Request) bool {
		if away.Load() {
			w.WriteHeader(http.StatusBadGateway)
		}
		return away.Load()
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	door := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	log := slog.New(slog.NewTextHandler(counted{&logged}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	go func() { ended <- app.Courier(ctx, far.URL(), door, log) }()
	time.Sleep(2500 * time.Millisecond)
	away.Store(false)
	status, _ := overTheNet(t, near, far.Key, map[string]any{"method": "GET", "path": "/"})
	stop()
	if err := <-ended; err != nil || status != 204 || logged.Load() != 1 {
		t.Errorf("status %d, %d warnings, %v", status, logged.Load(), err)
	}
}

// counted counts what is written.
type counted struct{ n *atomic.Int32 }

func (c counted) Write(b []byte) (int, error) {
	c.n.Add(1)
	return len(b), nil
}
