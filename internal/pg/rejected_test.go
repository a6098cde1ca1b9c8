package pg_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/pg"
)

// S2.19: a queue with on_failure: pause stands still behind a rejection, as behind any failure; another one goes on.
func TestARejectionPausesAQueueThatWantsThat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	careful := pg.Queue{Name: "careful", Priority: "Med", WhenFull: "refuse", OnFailure: "pause"}
	_, err := w.S.PutQueue(w.Ctx, w.By, careful, 0)
	w.Must(err)
	w.Post("careful", "T", "bad-1", "ok-2")
	w.Post("other", "T", "bad-3", "ok-4")
	w.run(w.Node("n"))
	if got := w.states("bad-1", "ok-2", "bad-3", "ok-4"); got != "bad-1 FAILED, ok-2 WAITING, bad-3 FAILED, ok-4 DONE" {
		t.Error(got)
	}
	if q, err := w.S.Queue(w.Ctx, w.ID, "careful"); err != nil || !q.Paused {
		t.Errorf("%+v, %v", q, err)
	}
}
