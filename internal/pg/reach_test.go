package pg_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

func TestAPurgeFailsDependentsThroughAllQueues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.Post("q", "T", "out", "first", "second")
	w.after("q", "same", "first")
	w.after("r", "next", "second")
	w.after("s", "far", "next")
	w.after("s", "of-out", "out")
	w.Claim(w.Node("n"), pgworld.Everything())
	n, more, err := w.S.PurgeQueue(w.Ctx, w.By, "q", 100)
	if err != nil || n != 2 || more { // same has failed with what it depends on
		t.Errorf("%d cancelled, more %v, %v", n, more, err)
	}
	if got := w.states("out", "first", "second", "same", "next", "far", "of-out"); got !=
		"out DISPATCHING, first CANCELLED, second CANCELLED, same FAILED, next FAILED, far FAILED, of-out WAITING" {
		t.Error(got)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

func TestWhatIsDroppedFailsItsDependentsThroughAllQueues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	_, err := w.S.PutQueue(w.Ctx, w.By, pg.Queue{Name: "q", Priority: "Med", MaxDepth: 3,
		WhenFull: "drop_oldest", OnFailure: "continue"}, 0)
	w.Must(err)
	w.Post("q", "T", "oldest", "kept")
	w.after("q", "same", "oldest")
	w.after("r", "next", "oldest")
	w.after("s", "far", "next")
	w.after("s", "of-kept", "kept")
	w.Post("q", "T", "new")
	if !w.S.Rippling() { // ingest locks no queues but those that it posts to
		t.Error("nobody is told that dependents are left")
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	for w.S.Rippling() {
		_, err := w.S.Ripple(w.Ctx)
		w.Must(err)
	}
	if got := w.states("oldest", "kept", "new", "same", "next", "far", "of-kept"); got !=
		"oldest CANCELLED, kept WAITING, new WAITING, same FAILED, next FAILED, far FAILED, of-kept WAITING" {
		t.Error(got)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

func TestATypeIsInUseWhileItIsAtTheHeadOfAQueue(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(w *world){
		"it waits in its lane": func(w *world) {},
		"it is out":            func(w *world) { w.Claim(w.Node("n"), pgworld.Everything()) },
		"it is in its delay": func(w *world) {
			l := w.Claim(w.Node("n"), pgworld.Everything())[0]
			w.Settle(w.Answer(l, outbox.Answer{Class: outbox.ClassRetry, Code: "1"}))
		},
		"its queue is paused":      func(w *world) { w.Lever(w.S.PauseQueue(w.Ctx, w.By, "q", true)) },
		"it is suspended":          func(w *world) { w.Lever(w.S.Suspend(w.Ctx, w.By, w.UID("x"))) },
		"its time has not come":    func(w *world) { w.instead(&pg.Submission{NotBefore: time.Now().Add(time.Hour)}) },
		"it waits for another one": func(w *world) { w.instead(&pg.Submission{DependsOn: []string{"other"}}) },
		"it was moved to the head": func(w *world) {
			w.Dispatcher("U", nil)
			w.instead(&pg.Submission{Type: "U"})
			w.Lever(w.S.Move(w.Ctx, w.By, w.Post("q", "T", "z")[0], pg.Place{}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Dispatcher("T", nil)
			w.Dispatcher("O", nil)
			w.Post("o", "O", "other")
			w.Lever(w.S.PauseQueue(w.Ctx, w.By, "o", true))
			w.Post("q", "T", "x")
			arrange(w)
			if err := w.S.RemoveDispatcher(w.Ctx, w.By, "T", false); fault.CodeOf(err) != "in_use" {
				t.Error(err)
			}
			w.Must(w.S.RemoveDispatcher(w.Ctx, w.By, "T", true))
			pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
		})
	}
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.Post("q", "T", "x")
	w.Lever(w.S.Cancel(w.Ctx, w.By, w.UID("x")))
	w.Must(w.S.RemoveDispatcher(w.Ctx, w.By, "T", false)) // all have ended
}

// instead cancels x and posts y in its place.
func (w *world) instead(sub *pg.Submission) {
	w.T.Helper()
	w.Lever(w.S.Cancel(w.Ctx, w.By, w.UID("x")))
	if sub.Queue, sub.UID, sub.Hash, sub.Data = "q", "y", []byte("y"), []byte(`{}`); sub.Type == "" {
		sub.Type = "T"
	}
	w.Must(w.postAll(sub)[0].Err)
}

// Calls that are still due to the worker of a removed type are signed with the secret of that type. A type of the same
// name that is put afterwards has a secret of its own, or none.
func TestTheSecretOfARemovedTypeStaysWithIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", func(d *outbox.Dispatcher) { d.Secret = []byte("a secret") })
	w.Must(w.S.RemoveDispatcher(w.Ctx, w.By, "T", false))
	if d := w.S.DispatcherOf(w.ID, "T"); d == nil || !d.Removed || string(d.Secret) != "a secret" {
		t.Errorf("removed: %+v", d)
	}
	w.Dispatcher("T", nil)
	if d := w.S.DispatcherOf(w.ID, "T"); d.Removed || d.Secret != nil {
		t.Errorf("put anew: %+v", d)
	}
}
