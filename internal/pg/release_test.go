package pg_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
)

// TestReleaseLeavesWhatALiveNodeTookMeanwhile holds a release between its snapshot and its locks, while
// another one releases the queue and a live node claims it.
func TestReleaseLeavesWhatALiveNodeTookMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	id := w.post("q", "T", "a")[0]
	dead, live := w.node("dead"), w.node("live")
	w.claim(dead, everything())
	w.later(11 * time.Second)
	_, err := w.s.Beat(w.ctx, live)
	w.must(err)
	_, err = w.s.Bury(w.ctx)
	w.must(err)

	late, open := w.lateComer()
	released := make(chan int, 1)
	go func() {
		n, err := late.s.Release(w.ctx)
		if err != nil {
			t.Error(err)
		}
		released <- n
	}()
	w.awaitBlocked(late.pid)

	if n, err := w.s.Release(w.ctx); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	l := w.claim(live, everything())
	if len(l) != 1 || !l[0].Resume {
		t.Fatalf("the live node claimed %+v", l)
	}
	open()
	if n := <-released; n != 0 {
		t.Errorf("the late release took %d queues from a live node", n)
	}
	if out := w.settle(w.answer(l[0], done())); out[0].Fenced || w.state(id) != outbox.DONE {
		t.Errorf("%+v, and the transaction is %s", out, w.state(id))
	}
}

// TestReleaseComesBackForWhatWasLocked: a node whose queues were locked while somebody released them keeps its row,
// and is looked for again until nothing is left of it.
func TestReleaseComesBackForWhatWasLocked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	w.post("q1", "T", "a")
	w.post("q2", "T", "b")
	dead := w.node("dead")
	if n := len(w.claim(dead, everything())); n != 2 {
		t.Fatal("claimed", n)
	}
	w.later(25 * time.Hour)
	_, err := w.s.Bury(w.ctx)
	w.must(err)
	holder, err := w.s.Pool().Begin(w.ctx)
	w.must(err)
	_, err = holder.Exec(w.ctx, `SELECT FROM postern.queue q JOIN postern.queue_name n USING (queue_id) WHERE n.name = 'q2' FOR UPDATE OF q`)
	w.must(err)
	step := func(what string, released int, open bool) {
		t.Helper()
		if n, err := w.s.Release(w.ctx); err != nil || n != released {
			t.Errorf("%s: released %d, %v; want %d", what, n, err, released)
		}
		var left bool
		w.must(w.s.Pool().QueryRow(w.ctx, `SELECT released_epoch < epoch FROM postern.node WHERE node_id = $1`, dead.ID).Scan(&left))
		if left != open {
			t.Errorf("%s: something may be left of the node: %v", what, left)
		}
	}
	step("while one is locked", 1, true)
	w.later(25 * time.Hour)
	w.must(w.s.Forget(w.ctx))
	step("while it is still locked", 0, true)
	w.must(holder.Rollback(w.ctx))
	step("when it is free", 1, false)
	step("afterwards", 0, false)
	w.must(w.s.Forget(w.ctx))
	var rows int
	w.must(w.s.Pool().QueryRow(w.ctx, `SELECT count(*) FROM postern.node WHERE node_id = $1`, dead.ID).Scan(&rows))
	if rows != 0 {
		t.Error("the row of a node that died days ago, and of which nothing is left, is still there")
	}
}

// TestReleaseOfEachIncarnation: a node that was buried and came back is looked for as well, and under each epoch.
func TestReleaseOfEachIncarnation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	w.post("q", "T", "a")
	n := w.node("n")
	for range 3 {
		if got := len(w.claim(n, everything())); got != 1 {
			t.Fatal("claimed", got)
		}
		w.later(11 * time.Second)
		_, err := w.s.Bury(w.ctx)
		w.must(err)
		n, err = w.s.Reincarnate(w.ctx, n)
		w.must(err)
		if freed, err := w.s.Release(w.ctx); err != nil || freed != 1 {
			t.Fatal("released", freed, err)
		}
	}
}
