package pg_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
)

func TestAPurgeFailsDependentsThroughAllQueues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	w.post("q", "T", "out", "first", "second")
	w.after("q", "same", "first")
	w.after("r", "next", "second")
	w.after("s", "far", "next")
	w.after("s", "of-out", "out")
	w.claim(w.node("n"), everything())
	n, more, err := w.s.PurgeQueue(w.ctx, w.by, "q", 100)
	if err != nil || n != 2 || more { // same has failed with what it depends on
		t.Errorf("%d cancelled, more %v, %v", n, more, err)
	}
	if got := w.states("out", "first", "second", "same", "next", "far", "of-out"); got !=
		"out DISPATCHING, first CANCELLED, second CANCELLED, same FAILED, next FAILED, far FAILED, of-out WAITING" {
		t.Error(got)
	}
	holdsTrue(t, w.ctx, w.s.Pool())
}

func TestWhatIsDroppedFailsItsDependentsThroughAllQueues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	_, err := w.s.PutQueue(w.ctx, w.by, pg.Queue{Name: "q", Priority: "Med", MaxDepth: 3, WhenFull: "drop_oldest", OnFailure: "continue"}, 0)
	w.must(err)
	w.post("q", "T", "oldest", "kept")
	w.after("q", "same", "oldest")
	w.after("r", "next", "oldest")
	w.after("s", "far", "next")
	w.after("s", "of-kept", "kept")
	w.post("q", "T", "new")
	if !w.s.Rippling() { // ingest locks no queues but those that it posts to
		t.Error("nobody is told that dependents are left")
	}
	holdsTrue(t, w.ctx, w.s.Pool())
	for w.s.Rippling() {
		_, err := w.s.Ripple(w.ctx)
		w.must(err)
	}
	if got := w.states("oldest", "kept", "new", "same", "next", "far", "of-kept"); got !=
		"oldest CANCELLED, kept WAITING, new WAITING, same FAILED, next FAILED, far FAILED, of-kept WAITING" {
		t.Error(got)
	}
	holdsTrue(t, w.ctx, w.s.Pool())
}

func TestATypeIsInUseWhileItIsAtTheHeadOfAQueue(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(w *world){
		"it waits in its lane": func(w *world) {},
		"it is out":            func(w *world) { w.claim(w.node("n"), everything()) },
		"it is in its delay": func(w *world) {
			l := w.claim(w.node("n"), everything())[0]
			w.settle(w.answer(l, outbox.Answer{Class: outbox.ClassRetry, Code: "1"}))
		},
		"its queue is paused":      func(w *world) { w.lever(w.s.PauseQueue(w.ctx, w.by, "q", true)) },
		"it is suspended":          func(w *world) { w.lever(w.s.Suspend(w.ctx, w.by, w.uid("x"))) },
		"its time has not come":    func(w *world) { w.instead(&pg.Submission{NotBefore: time.Now().Add(time.Hour)}) },
		"it waits for another one": func(w *world) { w.instead(&pg.Submission{DependsOn: []string{"other"}}) },
		"it was moved to the head": func(w *world) {
			w.dispatcher("U", nil)
			w.instead(&pg.Submission{Type: "U"})
			w.lever(w.s.Move(w.ctx, w.by, w.post("q", "T", "z")[0], pg.Place{}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.dispatcher("T", nil)
			w.dispatcher("O", nil)
			w.post("o", "O", "other")
			w.lever(w.s.PauseQueue(w.ctx, w.by, "o", true))
			w.post("q", "T", "x")
			arrange(w)
			if err := w.s.RemoveDispatcher(w.ctx, w.by, "T", false); fault.CodeOf(err) != "in_use" {
				t.Error(err)
			}
			w.must(w.s.RemoveDispatcher(w.ctx, w.by, "T", true))
			holdsTrue(t, w.ctx, w.s.Pool())
		})
	}
	w := newWorld(t)
	w.dispatcher("T", nil)
	w.post("q", "T", "x")
	w.lever(w.s.Cancel(w.ctx, w.by, w.uid("x")))
	w.must(w.s.RemoveDispatcher(w.ctx, w.by, "T", false)) // all have ended
}

// instead cancels x and posts y in its place.
func (w *world) instead(sub *pg.Submission) {
	w.t.Helper()
	w.lever(w.s.Cancel(w.ctx, w.by, w.uid("x")))
	if sub.Queue, sub.UID, sub.Hash, sub.Data = "q", "y", []byte("y"), []byte(`{}`); sub.Type == "" {
		sub.Type = "T"
	}
	w.must(w.postAll(sub)[0].Err)
}

// What is still to be said to the worker of a type that was removed is signed as what was said before; the type of that name
// which is put afterwards has its own secret, or none.
func TestTheSecretOfARemovedTypeStaysWithIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", func(d *outbox.Dispatcher) { d.Secret = []byte("a secret") })
	w.must(w.s.RemoveDispatcher(w.ctx, w.by, "T", false))
	if d := w.s.DispatcherOf(w.id, "T"); d == nil || !d.Removed || string(d.Secret) != "a secret" {
		t.Errorf("removed: %+v", d)
	}
	w.dispatcher("T", nil)
	if d := w.s.DispatcherOf(w.id, "T"); d.Removed || d.Secret != nil {
		t.Errorf("put anew: %+v", d)
	}
}
