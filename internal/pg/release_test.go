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
