package pg_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
)

func (w *world) pinned(queue, uid, account string) *pg.Submission {
	sub := w.sub(queue, "S", uid)
	sub.Sender = account
	return sub
}

// oneSender is a world with a queue of two, a and b, and a node for them, and acct-1 as the only sender.
func oneSender(t *testing.T) (*world, pg.Node) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p" })
	w.sender("p", "acct-1")
	w.post("q", "S", "a", "b")
	return w, w.node("n")
}

func TestADrainedSenderTakesOnlyWhatNamesIt(t *testing.T) {
	w, n := oneSender(t)
	l := w.claim(n, everything())[0]
	w.ingest(w.s, w.pinned("r", "mine-1", "acct-1"), w.pinned("r", "mine-2", "acct-1"), w.sub("r", "S", "c"))
	if r, err := w.s.DrainSender(w.ctx, w.by, "acct-1"); err != nil || !r.Changed {
		t.Fatal(r, err)
	}
	if r, err := w.s.DrainSender(w.ctx, w.by, "acct-1"); err != nil || r.Changed {
		t.Error(r, err)
	}
	if v, err := w.s.Sender(w.ctx, w.id, "acct-1"); err != nil || !v.Draining || v.Queue != "q" {
		t.Errorf("%+v %v", v, err)
	}
	for _, s := range []*stores.Store{w.s, w.other().s} {
		w.must(s.Refresh(w.ctx))
		out, err := s.Ingest(w.ctx, []*pg.Submission{w.pinned("r", "mine-3", "acct-1"), w.pinned("r", "mine-1", "acct-1")}, false)
		if err != nil || fault.CodeOf(out[0].Err) != "queue_draining" || !out[1].Replay {
			t.Error(out, err)
		}
	}
	if next := w.settle(w.answer(l, done()))[0].Next; next != nil { // b names nobody
		t.Fatal(next.Task.UID)
	}
	for _, uid := range []string{"mine-1", "mine-2"} {
		if why, err := w.s.Why(w.ctx, w.id, w.uid(uid)); err != nil || !why.Moving {
			t.Error(why, err)
		}
		got := w.claim(n, everything())
		if !slices.Equal(taken(got), []string{uid}) || got[0].Account != "acct-1" {
			t.Fatal(taken(got))
		}
		if next := w.settle(w.answer(got[0], done()))[0].Next; next != nil {
			t.Fatal(next.Task.UID)
		}
	}
	if got := w.claim(n, everything()); len(got) > 0 {
		t.Fatal(taken(got))
	}
	why, err := w.s.Why(w.ctx, w.id, w.uid("b"))
	w.must(err)
	if b := why.Blockers[0]; b.Kind != "sender_blocked" || !strings.Contains(b.Detail, "acct-1, may not be used: it is drained, and takes only what names it (by "+w.by.Actor) ||
		b.Levers[0].Path != "/senders/acct-1/resume" {
		t.Errorf("%+v", b)
	}
	if list, err := w.s.SenderPools(w.ctx, w.id, "", 10); err != nil || list[0].Free != 0 || list[0].Blocked != 1 {
		t.Error(list[0], err)
	}
	w.sender("p", "acct-2") // another of the pool goes on with the rest
	if got := w.claim(n, everything()); len(got) != 1 || got[0].Account != "acct-2" {
		t.Fatal(taken(got))
	}
	if r, err := w.s.PauseSender(w.ctx, w.by, "acct-1", false); err != nil || !r.Changed {
		t.Fatal(r, err)
	}
	if got := w.claim(n, everything()); len(got) != 1 || got[0].Account != "acct-1" {
		t.Fatal(taken(got))
	}
	w.ingest(w.s, w.pinned("s", "mine-4", "acct-1"))
	holdsTrue(t, w.ctx, w.s.Pool())
}

func TestTheQueueOfAPausedSenderGoesOnWithAnother(t *testing.T) {
	w, n := oneSender(t)
	l := w.claim(n, everything())[0]
	_, err := w.s.PauseSender(w.ctx, w.by, "acct-1", true)
	w.must(err)
	w.must(w.s.Refresh(w.ctx))
	if next := w.settle(w.answer(l, done()))[0].Next; next != nil {
		t.Fatal(next.Task.UID)
	}
	if got := w.claim(n, everything()); len(got) > 0 {
		t.Fatal(taken(got))
	}
	w.sender("p", "acct-2")
	if got := w.claim(n, everything()); !slices.Equal(taken(got), []string{"b"}) || got[0].Account != "acct-2" {
		t.Fatal(taken(got))
	}
	holdsTrue(t, w.ctx, w.s.Pool())
}

// A claim does not wait for a drain that is not committed, and takes others; a drain waits for a claim, which keeps what
// it bound.
func TestAClaimAndADrainOfItsSenderMeet(t *testing.T) {
	w, n := oneSender(t)
	o := w.other()
	drain := func(s *stores.Store, done chan<- error) { _, err := s.DrainSender(w.ctx, w.by, "acct-1"); done <- err }

	held, finish := hold(o.s, 1)
	drained := make(chan error, 1)
	go drain(o.s, drained)
	<-held
	if got := w.claim(n, everything()); len(got) > 0 {
		t.Fatal(taken(got))
	}
	finish(errRolledBack)
	if err := <-drained; err == nil {
		t.Fatal("it was to be rolled back")
	}

	held, finish = hold(w.s, 1)
	claimed := make(chan []*pg.Lease, 1)
	go func() {
		l, _, err := w.s.Claim(w.ctx, n, everything())
		if err != nil {
			t.Error(err)
		}
		claimed <- l
	}()
	<-held
	go drain(o.s, drained)
	w.awaitBlocked(o.pid)
	finish(nil)
	got := <-claimed
	w.must(<-drained)
	if !slices.Equal(taken(got), []string{"a"}) {
		t.Fatal(taken(got))
	}
	w.must(w.s.Refresh(w.ctx)) // which each process does once a second
	if next := w.settle(w.answer(got[0], done()))[0].Next; next != nil {
		t.Error(next.Task.UID)
	}
	if got := w.claim(n, everything()); len(got) > 0 {
		t.Error(taken(got))
	}
	holdsTrue(t, w.ctx, w.s.Pool())
}
