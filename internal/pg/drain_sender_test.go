package pg_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

func (w *world) pinned(queue, uid, account string) *pg.Submission {
	sub := w.Sub(queue, "S", uid)
	sub.Sender = account
	return sub
}

// oneSender is a world with a queue of two, a and b, and a node for them, and acct-1 as the only sender.
func oneSender(t *testing.T) (*world, pg.Node) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p" })
	w.Sender("p", "acct-1")
	w.Post("q", "S", "a", "b")
	return w, w.Node("n")
}

func TestADrainedSenderTakesOnlyWhatNamesIt(t *testing.T) {
	w, n := oneSender(t)
	l := w.Claim(n, pgworld.Everything())[0]
	w.Ingest(w.S, w.pinned("r", "mine-1", "acct-1"), w.pinned("r", "mine-2", "acct-1"), w.Sub("r", "S", "c"))
	if r, err := w.S.DrainSender(w.Ctx, w.By, "acct-1"); err != nil || !r.Changed {
		t.Fatal(r, err)
	}
	if r, err := w.S.DrainSender(w.Ctx, w.By, "acct-1"); err != nil || r.Changed {
		t.Error(r, err)
	}
	if v, err := w.S.Sender(w.Ctx, w.ID, "acct-1"); err != nil || !v.Draining || v.Queue != "q" {
		t.Errorf("%+v %v", v, err)
	}
	for _, s := range []*stores.Store{w.S, w.Other().S} {
		w.Must(s.Refresh(w.Ctx))
		out, err := s.Ingest(w.Ctx, []*pg.Submission{w.pinned("r", "mine-3", "acct-1"),
			w.pinned("r", "mine-1", "acct-1")}, false)
		if err != nil || fault.CodeOf(out[0].Err) != "queue_draining" || !out[1].Replay {
			t.Error(out, err)
		}
	}
	if next := w.Settle(w.Answer(l, pgworld.Done()))[0].Next; next != nil { // b names no sender
		t.Fatal(next.Task.UID)
	}
	for _, uid := range []string{"mine-1", "mine-2"} {
		if why, err := w.S.Reads.Why(w.Ctx, w.ID, w.UID(uid)); err != nil || !why.Moving {
			t.Error(why, err)
		}
		got := w.Claim(n, pgworld.Everything())
		if !slices.Equal(taken(got), []string{uid}) || got[0].Account != "acct-1" {
			t.Fatal(taken(got))
		}
		if next := w.Settle(w.Answer(got[0], pgworld.Done()))[0].Next; next != nil {
			t.Fatal(next.Task.UID)
		}
	}
	if got := w.Claim(n, pgworld.Everything()); len(got) > 0 {
		t.Fatal(taken(got))
	}
	why, err := w.S.Reads.Why(w.Ctx, w.ID, w.UID("b"))
	w.Must(err)
	if b := why.Blockers[0]; b.Kind != "sender_blocked" ||
		!strings.Contains(b.Detail,
			"acct-1, may not be used: it is drained, and takes only what names it (by "+w.By.Actor) ||
		b.Levers[0].Path != "/senders/acct-1/resume" {
		t.Errorf("%+v", b)
	}
	if list, err := w.S.SenderPools(w.Ctx, w.ID, "", 10); err != nil || list[0].Free != 0 || list[0].Blocked != 1 {
		t.Error(list[0], err)
	}
	w.Sender("p", "acct-2") // another of the pool goes on with the rest
	if got := w.Claim(n, pgworld.Everything()); len(got) != 1 || got[0].Account != "acct-2" {
		t.Fatal(taken(got))
	}
	if r, err := w.S.PauseSender(w.Ctx, w.By, "acct-1", false); err != nil || !r.Changed {
		t.Fatal(r, err)
	}
	if got := w.Claim(n, pgworld.Everything()); len(got) != 1 || got[0].Account != "acct-1" {
		t.Fatal(taken(got))
	}
	w.Ingest(w.S, w.pinned("s", "mine-4", "acct-1"))
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

// A sender that is taken out of use ends what it has in flight; then its queue goes on with another.
func TestTheQueueOfASenderThatIsTakenOutGoesOnWithAnother(t *testing.T) {
	for name, takeOut := range map[string]func(w *world) error{
		"paused":  func(w *world) error { _, err := w.S.PauseSender(w.Ctx, w.By, "acct-1", true); return err },
		"removed": func(w *world) error { return w.S.RemoveSender(w.Ctx, w.By, "acct-1") },
		"blocked for a time": func(w *world) error {
			_, err := w.S.BlockSender(w.Ctx, w.By, "acct-1", w.Now.Add(time.Hour))
			return err
		},
		"blocked for good": func(w *world) error {
			_, err := w.S.BlockSender(w.Ctx, w.By, "acct-1", pg.Forever)
			return err
		},
		"in another pool": func(w *world) error {
			_, err := w.S.PutSender(w.Ctx, w.By, pg.Sender{Account: "acct-1", Pool: "other"}, 0)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, n := oneSender(t)
			w.Later(0)
			l := w.Claim(n, pgworld.Everything())[0]
			w.Must(takeOut(w))
			w.Must(w.S.Refresh(w.Ctx))
			if next := w.Settle(w.Answer(l, pgworld.Done()))[0].Next; next != nil {
				t.Fatal(next.Task.UID)
			}
			if got := w.Claim(n, pgworld.Everything()); len(got) > 0 {
				t.Fatal(taken(got))
			}
			w.Sender("p", "acct-2")
			got := w.Claim(n, pgworld.Everything())
			if !slices.Equal(taken(got), []string{"b"}) || got[0].Account != "acct-2" {
				t.Fatal(taken(got))
			}
			pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
		})
	}
}

// A queue goes on with its sender behind a block that has ended, and where what comes next names a sender of another
// pool.
func TestAQueueGoesOnWithTheSenderThatItMayUse(t *testing.T) {
	t.Run("its block has ended", func(t *testing.T) {
		w, n := oneSender(t)
		w.Later(0)
		_, err := w.S.BlockSender(w.Ctx, w.By, "acct-1", w.Now.Add(time.Hour))
		w.Must(err)
		w.Later(2 * time.Hour)
		w.Must(w.S.Refresh(w.Ctx)) // which each process does once a second
		_, err = w.S.Beat(w.Ctx, n, pg.NodeLoad{})
		w.Must(err)
		l := w.Claim(n, pgworld.Everything())[0]
		if next := w.Settle(w.Answer(l, pgworld.Done()))[0].Next; next == nil || next.Account != "acct-1" {
			t.Errorf("next is %+v", next)
		}
		pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	})
	t.Run("the next names it", func(t *testing.T) {
		w, n := oneSender(t)
		w.Sender("other", "acct-9")
		w.Ingest(w.S, w.pinned("r", "mine-1", "acct-9"), w.pinned("r", "mine-2", "acct-9"), w.Sub("r", "S", "any"))
		for _, l := range w.Claim(n, pgworld.Everything()) {
			if l.Account != "acct-9" {
				continue
			}
			next := w.Settle(w.Answer(l, pgworld.Done()))[0].Next
			if next == nil || next.Account != "acct-9" {
				t.Fatalf("next is %+v", next)
			}
			if next = w.Settle(w.Answer(next, pgworld.Done()))[0].Next; next != nil {
				t.Errorf("%s needs a sender of the pool of its type, and goes out by %s", next.Task.UID, next.Account)
			}
		}
		pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	})
}

// A claim does not wait for a drain that is not committed, and takes others; a drain waits for a claim, which keeps
// what it bound.
func TestAClaimAndADrainOfItsSenderMeet(t *testing.T) {
	w, n := oneSender(t)
	o := w.Other()
	drain := func(s *stores.Store, done chan<- error) { _, err := s.DrainSender(w.Ctx, w.By, "acct-1"); done <- err }

	held, finish := pgworld.Hold(o.S, 1)
	drained := make(chan error, 1)
	go drain(o.S, drained)
	<-held
	if got := w.Claim(n, pgworld.Everything()); len(got) > 0 {
		t.Fatal(taken(got))
	}
	finish(pgworld.ErrRolledBack)
	if err := <-drained; err == nil {
		t.Fatal("it was to be rolled back")
	}

	held, finish = pgworld.Hold(w.S, 1)
	claimed := make(chan []*pg.Lease, 1)
	go func() {
		l, _, err := w.S.Claim(w.Ctx, n, pgworld.Everything())
		if err != nil {
			t.Error(err)
		}
		claimed <- l
	}()
	<-held
	go drain(o.S, drained)
	w.AwaitBlocked(o.PID)
	finish(nil)
	got := <-claimed
	w.Must(<-drained)
	if !slices.Equal(taken(got), []string{"a"}) {
		t.Fatal(taken(got))
	}
	w.Must(w.S.Refresh(w.Ctx)) // which each process does once a second
	if next := w.Settle(w.Answer(got[0], pgworld.Done()))[0].Next; next != nil {
		t.Error(next.Task.UID)
	}
	if got := w.Claim(n, pgworld.Everything()); len(got) > 0 {
		t.Error(taken(got))
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}
