package work_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/remotetest"
	"github.com/postern-dev/postern/internal/work"
)

// What is posted in a process that works goes out without a claim, while nobody waits: here claims wait for a lock.
func TestAPostGoesOutWithoutAClaim(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("T", nil)
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch}, remotetest.Done(map[string]any{"ok": true}))
	stop := h.engine("n1", func(c *work.Config) { c.Store, c.TTL = h.s, time.Minute })
	for taken, end := false, time.Now().Add(20*time.Second); !taken; time.Sleep(10 * time.Millisecond) { // from its first claim on
		if time.Now().After(end) {
			t.Fatal("nothing is taken")
		}
		h.await(h.post("q", "T", time.Now().String()), 10*time.Second, outbox.DONE)
		tx, err := h.s.Pool().Begin(h.ctx)
		h.must(err)
		_, err = tx.Exec(h.ctx, `SET LOCAL lock_timeout = '2s'; LOCK TABLE postern.ready IN ACCESS EXCLUSIVE MODE`)
		h.must(err)
		posted := h.post("q", "T", time.Now().String())
		for range 100 {
			all, err := h.s.Transactions(h.ctx, h.by.Context, posted)
			h.must(err)
			if taken = all[posted[0]].State == outbox.DONE; taken {
				break
			}
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
