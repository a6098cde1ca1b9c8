package reads_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/sequencer"
)

// A head that waits by itself since its call came to nothing is told with what was answered, since when, and when it is
// tried again.
func TestWhyNamesWhatBlocksAQueueAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	id := w.Post("q", "T", "a")[0]
	begun := w.Now
	a := w.Answer(w.Claim(w.Node("n"), pgworld.Everything())[0], outbox.Answer{
		Class:   outbox.ClassBlocked,
		Scope:   outbox.ScopeQueue,
		Code:    "http_404",
		Message: "no such path",
	})
	a.Gate = sequencer.MoveNone
	w.Settle(a)
	why, err := w.S.Reads.Why(w.Ctx, w.ID, id)
	w.Must(err)
	b := why.Blockers[0]
	if len(why.Blockers) != 1 || b.Kind != "queue_blocked" || !strings.Contains(b.Detail, "no such path (http_404)") ||
		!b.Since.Equal(begun) || b.Next == nil || !b.Next.At.Equal(begun.Add(a.Step.Delay)) {
		t.Errorf("%+v, next %+v", why.Blockers, b.Next)
	}
}

// A gateway, or the worker itself, has asked to leave a transaction alone for hours. The lever that why names tries it
// at once.
func TestWhatIsBlockedAloneCanBeTriedNow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	n := w.Node("n")
	ids := w.Post("q", "T", "a", "b")
	hours := outbox.Answer{
		Class:   outbox.ClassBlocked,
		Scope:   outbox.ScopeQueue,
		Code:    "http_503",
		Message: "maintenance",
		Until:   w.Now.Add(5 * time.Hour),
	}
	block := func() {
		t.Helper()
		claimed := w.Claim(n, pgworld.Everything())
		if len(claimed) != 1 || claimed[0].ID() != ids[0] || claimed[0].Attempt != 1 {
			t.Fatalf("claimed %+v", claimed)
		}
		a := w.Answer(claimed[0], hours)
		a.Gate = sequencer.MoveNone
		w.Settle(a)
	}
	block()
	why, err := w.S.Reads.Why(w.Ctx, w.ID, ids[0])
	w.Must(err)
	if b := why.Blockers[0]; len(b.Levers) == 0 || !strings.HasSuffix(b.Levers[0].Path, ids[0].String()+"/retry") {
		t.Errorf("the levers are %+v, want retry first", b.Levers)
	}
	if r, err := w.S.RetryNow(w.Ctx, w.By, ids[1]); fault.CodeOf(err) != "wrong_state" {
		t.Errorf("what stands behind it: %+v, %v", r, err)
	}
	w.Lever(w.S.RetryNow(w.Ctx, w.By, ids[0]))
	if r, err := w.S.RetryNow(w.Ctx, w.By, ids[0]); err != nil || r.Changed {
		t.Errorf("it may go out, and was told to once more: %+v, %v", r, err)
	}
	block() // it is no new transaction to its worker
	w.Lever(w.S.Suspend(w.Ctx, w.By, ids[0]))
	if r, err := w.S.RetryNow(w.Ctx, w.By, ids[0]); fault.CodeOf(err) != "wrong_state" || r.Changed {
		t.Errorf("suspended: %+v, %v", r, err)
	}
	w.Lever(w.S.Resume(w.Ctx, w.By, ids[0]))
	w.Settle(w.Answer(w.Claim(n, pgworld.Everything())[0], pgworld.Done()))
	if s := w.State(ids[0]); s != outbox.DONE {
		t.Errorf("it is %s", s)
	}
}
