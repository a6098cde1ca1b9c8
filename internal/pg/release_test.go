package pg_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// TestReleaseLeavesWhatALiveNodeTookMeanwhile holds a release between its snapshot and its locks, while
// another one releases the queue and a live node claims it.
func TestReleaseLeavesWhatALiveNodeTookMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	id := w.Post("q", "T", "a")[0]
	dead, live := w.Node("dead"), w.Node("live")
	w.Claim(dead, pgworld.Everything())
	w.Later(11 * time.Second)
	_, err := w.S.Beat(w.Ctx, live, pg.NodeLoad{})
	w.Must(err)
	_, err = w.S.Bury(w.Ctx)
	w.Must(err)

	late, open := w.lateComer()
	released := make(chan int, 1)
	go func() {
		n, err := late.S.Release(w.Ctx)
		if err != nil {
			t.Error(err)
		}
		released <- n
	}()
	w.AwaitBlocked(late.PID)

	if n, err := w.S.Release(w.Ctx); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	l := w.Claim(live, pgworld.Everything())
	if len(l) != 1 || !l[0].Resume {
		t.Fatalf("the live node claimed %+v", l)
	}
	open()
	if n := <-released; n != 0 {
		t.Errorf("the late release took %d queues from a live node", n)
	}
	if out := w.Settle(w.Answer(l[0], pgworld.Done())); out[0].Fenced || w.State(id) != outbox.DONE {
		t.Errorf("%+v, and the transaction is %s", out, w.State(id))
	}
}

// TestReleaseComesBackForWhatWasLocked: a node whose queues were locked while somebody released them keeps its row,
// and is looked for again until nothing is left of it.
func TestReleaseComesBackForWhatWasLocked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.Post("q1", "T", "a")
	w.Post("q2", "T", "b")
	dead := w.Node("dead")
	if n := len(w.Claim(dead, pgworld.Everything())); n != 2 {
		t.Fatal("claimed", n)
	}
	w.Later(25 * time.Hour)
	_, err := w.S.Bury(w.Ctx)
	w.Must(err)
	holder := w.Begin(w.S.Pool())
	_, err = holder.Exec(w.Ctx,
		`SELECT FROM postern.queue q JOIN postern.queue_name n USING (queue_id) WHERE n.name = 'q2' FOR UPDATE OF q`)
	w.Must(err)
	step := func(what string, released int, open bool) {
		t.Helper()
		if n, err := w.S.Release(w.Ctx); err != nil || n != released {
			t.Errorf("%s: released %d, %v; want %d", what, n, err, released)
		}
		var left bool
		w.Must(w.S.Pool().QueryRow(w.Ctx,
			`SELECT released_epoch < epoch FROM postern.node WHERE node_id = $1`, dead.ID).Scan(&left))
		if left != open {
			t.Errorf("%s: something may be left of the node: %v", what, left)
		}
	}
	step("while one is locked", 1, true)
	w.Later(25 * time.Hour)
	w.Must(w.S.Forget(w.Ctx))
	step("while it is still locked", 0, true)
	w.Must(holder.Rollback(w.Ctx))
	step("when it is free", 1, false)
	step("afterwards", 0, false)
	w.Must(w.S.Forget(w.Ctx))
	var rows int
	w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT count(*) FROM postern.node WHERE node_id = $1`, dead.ID).Scan(&rows))
	if rows != 0 {
		t.Error("the row of a node that died days ago, and of which nothing is left, is still there")
	}
}

// TestReleaseOfEachIncarnation: a node that was buried and came back is looked for as well, and under each epoch.
func TestReleaseOfEachIncarnation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.Post("q", "T", "a")
	n := w.Node("n")
	for range 3 {
		if got := len(w.Claim(n, pgworld.Everything())); got != 1 {
			t.Fatal("claimed", got)
		}
		w.Later(11 * time.Second)
		_, err := w.S.Bury(w.Ctx)
		w.Must(err)
		n, err = w.S.Reincarnate(w.Ctx, n)
		w.Must(err)
		if freed, err := w.S.Release(w.Ctx); err != nil || freed != 1 {
			t.Fatal("released", freed, err)
		}
	}
}
