package work_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/remotetest"
	"github.com/postern-dev/postern/internal/safe"
)

// heard gathers where panics were recovered.
func heard(t *testing.T) (places func() []string) {
	var mu sync.Mutex
	var list []string
	t.Cleanup(safe.Hear(func(p *safe.Panic) {
		mu.Lock()
		defer mu.Unlock()
		list = append(list, p.Place)
	}))
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(list)
	}
}

// within waits for a condition.
func (h *house) within(what string, met func() bool) {
	h.t.Helper()
	for end := time.Now().Add(60 * time.Second); !met(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			h.t.Fatal("not within a minute:", what)
		}
	}
}

// taken is the TTL of nodes that panic: what a panic interrupts may be theirs by its row until that is over.
const taken = 2 * time.Second

// A panic at the beginning of anything that a process runs by itself ends that, and nothing else: it is begun anew, and
// what was posted goes out once. (Tests that provoke panics run alone.)
func TestAPanicAnywhereLosesNothing(t *testing.T) {
	for _, place := range []string{"claims", "look back", "heartbeat", "timers", "deliveries", "sources", "events",
		"configuration", "staged rows", "processors", "tools",
		"transaction", "settle", "doorbell", "ring", "practice of a connection",
		"job dispatch", "job sweep", "job retry", "job include", "job callback",
		"job channel", "job tick", "job sample"} {
		t.Run(place, func(t *testing.T) {
			told := heard(t)
			h := newHouse(t)
			h.dispatcher("T", nil)
			h.fake.IncludeAll(true)
			var armed atomic.Int32
			defer safe.Provoke(func(at string) {
				if at == place && armed.Add(-1) >= 0 {
					var nothing *house
					_ = nothing.ctx
				}
			})()
			var ids []outbox.ID
			for q := range 3 {
				uids := []string{fmt.Sprint("a", q), fmt.Sprint("b", q)}
				ids = append(ids, h.post(fmt.Sprint("q", q), "T", uids...)...)
			}
			armed.Store(2)
			h.engine("n", func(c *parts) { withTools(h)(c); c.Loops, c.TTL = &safe.Loops{}, taken })
			h.await(ids, 60*time.Second, outbox.DONE)
			if place == "practice of a connection" { // of processes alone, whose pools practise
				return
			}
			h.within("a panic in "+place, func() bool { return slices.Contains(told(), place) })
			armed.Store(0)
			h.await(h.post("last", "T", "last"), 60*time.Second, outbox.DONE)
		})
	}
}

// wounded is a worker and an endpoint whose calls panic at first.
type wounded struct {
	remote.Worker
	dispatch, status, hook atomic.Int32 // how many panic
}

func once(n *atomic.Int32) {
	if n.Add(-1) >= 0 {
		panic("wounded")
	}
}

func (w *wounded) Dispatch(ctx context.Context, c remote.Call) outbox.Answer {
	once(&w.dispatch)
	return w.Worker.Dispatch(ctx, c)
}

func (w *wounded) StatusBatch(ctx context.Context, url, typ string, hashes []string) []outbox.Status {
	once(&w.status)
	return w.Worker.StatusBatch(ctx, url, typ, hashes)
}

func (w *wounded) Hook(ctx context.Context, c remote.Call, hook outbox.Hook, result,
	problem json.RawMessage, token string) remote.HookAnswer {
	once(&w.hook)
	return w.Worker.Hook(ctx, c, hook, result, problem, token)
}

// A panic in a call costs that call: its queue is given up and goes on, others do not notice, polls and hooks are made
// again.
func TestAFlightThatPanicsGivesItsQueueUp(t *testing.T) {
	told := heard(t)
	h := newHouse(t)
	h.dispatcher("T", nil)
	h.fake.IncludeAll(true)
	h.dispatcher("CHAIN", nil)
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, Type: "T"}, remotetest.Accept(""))
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, Type: "CHAIN"}, remotetest.Accept(""))
	w := &wounded{}
	w.dispatch.Store(2)
	w.status.Store(2)
	w.hook.Store(1)
	var stop func()
	stop = h.engine("n", func(c *parts) {
		w.Worker, c.Worker, c.Loops = c.Worker, w, &safe.Loops{}
		c.TTL = taken
	})
	ids := append(h.post("q", "T", "a", "b", "c"), h.post("r", "T", "d")...)
	ids = append(ids, h.post("chain", "CHAIN", "e")...)
	h.await(ids, 60*time.Second, outbox.DONE)
	h.within("a hook that is called again", func() bool {
		return len(h.fake.Calls(remotetest.Match{Op: remotetest.OpOnSuccess})) >= 4
	})
	for _, place := range []string{"flight", "poll", "delivery"} {
		if !slices.Contains(told(), place) {
			t.Errorf("no panic was told of in %s: %v", place, told())
		}
	}
	stop() // nothing is counted that has ended
}

// A loop that panics again and again says so, and the others go on.
func TestALoopThatPanicsAgainAndAgainSaysSo(t *testing.T) {
	heard(t)
	h := newHouse(t)
	h.dispatcher("T", nil)
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch}, remotetest.Done(map[string]any{"ok": true}))
	loops := &safe.Loops{}
	defer safe.Provoke(func(at string) {
		if at == "timers" || at == "job sweep" {
			panic("again")
		}
	})()
	h.engine("n", func(c *parts) { c.Loops = loops })
	h.within("it fails", func() bool { return loops.Failing() != "" })
	h.await(h.post("q", "T", "a"), 60*time.Second, outbox.DONE)
}
