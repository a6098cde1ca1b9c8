package pg_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// movedOften moves a transaction between two queues, more often than a post begins again, and returns all its ids.
func (w *world) movedOften(uid string) (ids []outbox.ID) {
	w.T.Helper()
	ids = []outbox.ID{w.UID(uid)}
	for i := range 10 {
		w.Later(time.Second)
		r, err := w.S.MoveTo(w.Ctx, w.By, ids[i], []string{"q", "p"}[i%2], nil)
		w.Must(err)
		ids = append(ids, *r.Moved)
	}
	pgworld.HoldsTrue(w.T, w.Ctx, w.S.Pool())
	return ids
}

func TestADependentOnAnOldIDOfWhatWasMovedWaitsForIt(t *testing.T) {
	t.Parallel()
	for _, door := range []string{"post", "submit"} {
		for _, uid := range []string{"ok-a", "bad-a"} {
			w := newWorld(t)
			w.Dispatcher("T", nil)
			w.Post("p", "T", uid)
			ids := w.movedOften(uid)
			for i, id := range []outbox.ID{ids[0], ids[4], ids[10]} {
				d := fmt.Sprint("ok-d", i)
				if door == "post" {
					w.after("r", d, id.String(), uid)
					continue
				}
				w.Must(w.submitAfter(w.app(1), "r", d, id.String()))
				w.drainAll(w.S)
			}
			if got := w.states("ok-d0", "ok-d1", "ok-d2"); got != "ok-d0 WAITING, ok-d1 WAITING, ok-d2 WAITING" {
				t.Errorf("%s: %s", door, got)
			}
			if on := w.ByUID("ok-d0").DependsOn; len(on) != 1 || on[0] != ids[10].String() {
				t.Errorf("%s: it depends on %v, want %s", door, on, ids[10])
			}
			pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
			order, want := w.run(w.Node("n")), []string{"ok-a", "ok-d0", "ok-d1", "ok-d2"}
			if uid == "bad-a" {
				want = []string{"bad-a"}
			}
			if !slices.Equal(order, want) {
				t.Errorf("%s: %v went out, want %v", door, order, want)
			}
			pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
		}
	}
}

// The place of a uid is read before any queue is locked. A move that commits in between leads to the new one.
func TestADependentOnWhatIsBeingMovedWaitsForIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	id := w.Post("p", "T", "ok-a")[0]
	o := w.Other()
	held, finish := pgworld.Hold(w.S, 2) // the first one makes the queue
	moved, posted := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := w.S.MoveTo(w.Ctx, w.By, id, "q", nil)
		moved <- err
	}()
	select {
	case <-held:
	case err := <-moved:
		t.Fatalf("the move was not held: %v", err)
	}
	sub := dependent("r", "ok-d", "ok-a")
	sub.ContextID = w.ID
	go func() {
		out, err := o.S.Ingest(w.Ctx, []*pg.Submission{sub}, false)
		if err == nil {
			err = out[0].Err
		}
		posted <- err
	}()
	w.AwaitBlocked(o.PID)
	finish(nil)
	w.Must(<-moved)
	w.Must(<-posted)
	if order := w.run(w.Node("n")); !slices.Equal(order, []string{"ok-a", "ok-d"}) {
		t.Errorf("%v went out, and %s", order, w.states("ok-d"))
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

// An application that lost the answer to its commit sends the same again. What an operator moved since is the same.
func TestASubmitThatIsRepeatedAfterAMoveIsTheSame(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	app := w.app(1)
	x := w.Post("x", "T", "x")[0]
	again := func() error { return w.submitAfter(app, "p", "u", x.String()) }
	unordered := func() error { return w.submitAfter(app, "", "free") }
	w.Must(again())
	w.Must(unordered())
	w.drainAll(w.S)
	first := w.movedOften("u")[0]
	w.MoveTo("u", "q", nil)
	w.MoveTo("x", "y", nil)
	w.MoveTo("x", "z", nil)
	w.MoveTo("free", "q", nil)
	w.Must(again())
	w.Must(w.submitAfter(app, "p", "u", "x"))
	w.Must(unordered())
	for want, err := range map[string]error{
		"[queue]":      w.submitAfter(app, "q", "u", x.String()),
		"[depends_on]": w.submitAfter(app, "p", "u", "free"),
	} {
		if _, doc := problem(t, err); fmt.Sprint(doc["code"], doc["differs"]) != "idempotency_conflict"+want {
			t.Errorf("%v, want %s", doc, want)
		}
	}
	if out := w.drainAll(w.S); out.Rows != 0 {
		t.Errorf("drained %+v", out)
	}
	// retention forgets what it was before a move, and with it the queue that its body names
	w.Exec(`DELETE FROM postern.task WHERE (queue_id, seq) = ($1, $2)`, first.Queue, first.Seq)
	w.Must(again())
}

// A ripple goes on behind the places that it has reached. A dependent that is moved before these, between two of its
// commits, is released all the same.
func TestADependentThatIsMovedWhileARipplePassesIsReleased(t *testing.T) {
	t.Parallel()
	const dependents = 2001 // an end takes a thousand, each commit of a ripple another thousand
	w := newWorld(t)
	w.Dispatcher("T", nil)
	low := w.Post("low", "T", "ok-low")[0]
	w.Lever(w.S.Cancel(w.Ctx, w.By, low))
	root := w.Post("root", "T", "ok-root")[0].String()
	var subs []*pg.Submission
	for i := range dependents {
		subs = append(subs, dependent("fan", fmt.Sprint("ok-", i), root))
	}
	for part := range slices.Chunk(append(subs, dependent("last", "ok-last", root)), 1000) {
		for _, a := range w.postAll(part...) {
			w.Must(a.Err)
		}
	}
	w.Settle(w.Answer(w.Claim(w.Node("n"), pgworld.Everything())[0], pgworld.Done()))
	o, last, commits := w.Other(), w.UID("ok-last"), 0
	w.S.HoldCommits(func(context.Context, uint32) (err error) {
		if commits++; commits == 1 {
			_, err = o.S.MoveTo(w.Ctx, w.By, last, "low", nil)
		}
		return err
	})
	for w.S.Rippling() {
		_, err := w.S.Ripple(w.Ctx)
		w.Must(err)
	}
	w.S.HoldCommits(nil)
	if now := w.UID("ok-last"); commits < 2 || now.Queue != low.Queue || now.Queue >= last.Queue {
		t.Fatalf("%d commits, moved from %s to %s", commits, last, now)
	}
	var left int
	w.Scan(`SELECT count(*) FROM postern.ripple`, &left)
	if left != 0 {
		t.Errorf("%d ends are left", left)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	if got := len(w.run(w.Node("n2"))); got != dependents+1 {
		t.Errorf("%d of %d went out", got, dependents+1)
	}
}
