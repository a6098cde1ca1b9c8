package work_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/remotetest"
)

// A post in a process that works goes out without a claim, while no other queue waits: here claims wait for a lock.
func TestAPostGoesOutWithoutAClaim(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("T", nil)
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch}, remotetest.Done(map[string]any{"ok": true}))
	stop := h.engine("n1", func(c *parts) { c.Store = h.s })
	for taken, end := false, time.Now().Add(soon); !taken; time.Sleep(10 * time.Millisecond) { // from its first claim on
		if time.Now().After(end) {
			t.Fatal("nothing is taken")
		}
		h.await(h.post("q", "T", time.Now().String()), soon, outbox.DONE)
		tx, err := h.s.Pool().Begin(h.ctx)
		h.must(err)
		_, err = tx.Exec(h.ctx, `SET LOCAL lock_timeout = '2s'; SET LOCAL idle_in_transaction_session_timeout = '1min'; LOCK TABLE postern.ready IN ACCESS EXCLUSIVE MODE`)
		h.must(err)
		uid := time.Now().String()
		posted, err := h.s.Ingest(h.ctx, []*pg.Submission{{ContextID: h.by.Context, Queue: "q", Type: "T", UID: uid, Hash: []byte(uid), Data: []byte(`{}`)}}, false)
		// a queue that is not taken waits for the lock, and fails
		for n := 0; err == nil && posted[0].Err == nil && !taken && n < 100; n++ {
			all, err := h.s.Transactions(h.ctx, h.by.Context, []outbox.ID{posted[0].ID})
			h.must(err)
			taken = all[posted[0].ID].State == outbox.DONE
			time.Sleep(10 * time.Millisecond)
		}
		h.must(tx.Rollback(h.ctx))
	}
	stop()
	out, err := h.s.Ingest(h.ctx, []*pg.Submission{{ContextID: h.by.Context, Queue: "q", Type: "T", UID: "late", Hash: []byte("late"), Data: []byte(`{}`)}}, false)
	h.must(err)
	if all, err := h.s.Transactions(h.ctx, h.by.Context, []outbox.ID{out[0].ID}); err != nil || all[out[0].ID].State != outbox.WAITING {
		t.Errorf("after its process has stopped it is %+v, %v", all[out[0].ID], err)
	}
}

// A stream of posts takes no place from transactions that wait already: here of posts that another process made, and of
// more clients than there are places.
func TestPostsDoNotStarveWhoWaits(t *testing.T) {
	for name, full := range map[string]func(*parts, *outbox.Dispatcher){
		"of the process": func(c *parts, _ *outbox.Dispatcher) { c.Concurrency = 3 },
		"of the type":    func(_ *parts, d *outbox.Dispatcher) { d.Slots = 3 },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.dispatcher("T", func(d *outbox.Dispatcher) { full(&parts{}, d) })
			h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch}, remotetest.Done(map[string]any{"ok": true}).Slow(5*time.Millisecond))
			h.engine("n1", func(c *parts) { c.Store = h.s; full(c, &outbox.Dispatcher{}) })
			ctx, stop := context.WithCancel(h.ctx)
			var posters sync.WaitGroup
			defer posters.Wait()
			defer stop()
			for i := range 4 {
				posters.Go(func() {
					for n := 0; ctx.Err() == nil; n++ {
						key := fmt.Sprintf("p%d-%d", i, n)
						out, err := h.s.Ingest(h.ctx, []*pg.Submission{{ContextID: h.by.Context, Queue: key, Type: "T", UID: key, Hash: []byte(key), Data: []byte(`{}`)}}, false)
						if err != nil && ctx.Err() == nil {
							t.Error(err)
							return
						}
						for done := false; !done && ctx.Err() == nil; time.Sleep(time.Millisecond) {
							all, err := h.s.Transactions(h.ctx, h.by.Context, []outbox.ID{out[0].ID})
							done = err == nil && all[out[0].ID].State == outbox.DONE
						}
					}
				})
			}
			other := &house{t: t, db: h.db, s: h.store(), fake: h.fake, by: h.by, ctx: h.ctx}
			for i := range 20 {
				other.await(other.post("foreign", "T", fmt.Sprint("f", i)), 30*time.Second, outbox.DONE)
			}
		})
	}
}
