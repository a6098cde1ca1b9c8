package pg_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// TestNoWakeUpIsLost lets a post and the settle that finds the queue empty meet, in both orders, for one queue and for
// two.
func TestNoWakeUpIsLost(t *testing.T) {
	t.Parallel()
	both := []string{"q", "r"}
	for _, first := range []string{"post", "settle"} {
		for i, end := range []error{nil, errors.New("rolled back"), nil, errors.New("rolled back")} {
			queues := both[:1+i/2]
			t.Run(fmt.Sprintf("%s first, ended by %v, in %d", first, end, len(queues)), func(t *testing.T) {
				w := newWorld(t)
				w.Dispatcher("T", nil)
				for _, q := range queues {
					w.Post(q, "T", q+"a")
				}
				n := w.Node("n")
				leases := w.Claim(n, pgworld.Everything())
				o := w.Other()
				var next []*pg.Lease
				post := func(s *stores.Store) {
					var subs []*pg.Submission
					for _, q := range queues {
						subs = append(subs, w.Sub(q, "T", q+"b"))
					}
					out, err := s.Ingest(w.Ctx, subs, false)
					for i := range out {
						if err == nil && out[i].Err != nil {
							t.Error(out[i].Err)
						}
					}
				}
				settle := func(s *stores.Store) {
					var answers []*pg.Answer
					for _, l := range leases {
						answers = append(answers, w.Answer(l, pgworld.Done()))
					}
					next = nil
					out, err := s.Settle(w.Ctx, answers)
					for i := range out {
						if err == nil && out[i].Next != nil {
							next = append(next, out[i].Next)
						}
					}
				}
				a, b := post, settle
				if first == "settle" {
					a, b = settle, post
				}
				warm(w, o.S, queues...)
				held, finish := pgworld.Hold(w.S, 1)
				doneA, doneB := make(chan bool), make(chan bool)
				go func() { a(w.S); close(doneA) }()
				<-held
				go func() { b(o.S); close(doneB) }()
				w.AwaitBlocked(o.PID)
				finish(end)
				<-doneA
				<-doneB
				pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
				// all stored transactions are done in the end, whether the first committed or not
				if end != nil && first == "settle" {
					settle(w.S)
				}
				for leases = next; len(leases) > 0; leases = next {
					settle(w.S)
				}
				w.work(n)
				var waiting int
				if w.Scan(`SELECT count(*) FROM postern.tx WHERE state <> 'DONE'`, &waiting); waiting != 0 {
					t.Errorf("%d transactions are not done", waiting)
				}
			})
		}
	}
}

// warm lets a store learn the ids of queues without a post.
func warm(w *world, s *stores.Store, queues ...string) {
	for _, q := range queues {
		_, err := s.PauseQueue(w.Ctx, w.By, q, false)
		w.Must(err)
	}
}

func TestTheBodyOfAHeadThatIsNewerThanTheSnapshotIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.Post("q", "T", "a")
	n := w.Node("n")
	l := w.Claim(n, pgworld.Everything())[0]
	o := w.Other()
	held, finish := pgworld.Hold(w.S, 1)
	posted, settled := make(chan bool), make(chan pg.Settled)
	go func() { w.Post("q", "T", "b"); close(posted) }()
	<-held
	go func() { // its statement began before the post's commit, and waits for the row
		out, err := o.S.Settle(w.Ctx, []*pg.Answer{w.Answer(l, pgworld.Done())})
		if err != nil {
			t.Error(err)
		}
		settled <- out[0]
	}()
	w.AwaitBlocked(o.PID)
	finish(nil)
	<-posted
	if out := <-settled; out.Next == nil || out.Next.Task.UID != "b" {
		t.Errorf("next is %+v", out.Next)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

func TestWhatIsCancelledWhileASettleWaitsForTheRowIsNotHandedOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	ids := w.Post("q", "T", "a", "b", "c")
	l := w.Claim(w.Node("n"), pgworld.Everything())[0]
	o := w.Other()
	held, finish := pgworld.Hold(w.S, 1)
	cancelled, settled := make(chan bool), make(chan pg.Settled)
	go func() {
		if _, err := w.S.Cancel(w.Ctx, w.By, ids[1]); err != nil {
			t.Error(err)
		}
		close(cancelled)
	}()
	<-held
	go func() {
		out, err := o.S.Settle(w.Ctx, []*pg.Answer{w.Answer(l, pgworld.Done())})
		if err != nil {
			t.Error(err)
		}
		settled <- out[0]
	}()
	w.AwaitBlocked(o.PID)
	finish(nil)
	<-cancelled
	if out := <-settled; out.Next == nil || out.Next.ID() != ids[2] {
		t.Errorf("next is %+v", out.Next)
	}
	if w.State(ids[1]) != outbox.CANCELLED || w.State(ids[2]) != outbox.DISPATCHING {
		t.Error(w.State(ids[1]), w.State(ids[2]))
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

// TestNothingIsHandedOutBeforeTheOneBeforeItIsDurable: hot-path.md, statement 4.
func TestNothingIsHandedOutBeforeTheOneBeforeItIsDurable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	ids := w.Post("q", "T", "a", "b")
	l := w.Claim(w.Node("n"), pgworld.Everything())[0]
	held, finish := pgworld.Hold(w.S, 1)
	handed := make(chan error)
	go func() {
		_, err := w.S.Settle(w.Ctx, []*pg.Answer{w.Answer(l, pgworld.Done())})
		handed <- err
	}()
	<-held
	select {
	case <-handed:
		t.Error("the next was handed out before the commit")
	default:
	}
	if w.State(ids[0]) != outbox.DISPATCHING || w.State(ids[1]) != outbox.WAITING {
		t.Error(w.State(ids[0]), w.State(ids[1]))
	}
	finish(errors.New("crash"))
	if err := <-handed; err == nil {
		t.Error("a settle that was not committed says that it was")
	}
	if w.State(ids[0]) != outbox.DISPATCHING || w.State(ids[1]) != outbox.WAITING {
		t.Error(w.State(ids[0]), w.State(ids[1]))
	}
}

// TestALateAnswerBesideTheOneThatCounts: a process that was buried and came back may settle both in one
// batch, since its settles are gathered.
func TestALateAnswerBesideTheOneThatCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	ids := w.Post("q", "T", "a", "b", "c", "d")
	n := w.Node("n")
	late := w.Claim(n, pgworld.Everything())[0]
	_, err := w.S.GiveUpAll(w.Ctx, n)
	w.Must(err)
	l := w.Settle(w.Answer(w.Claim(n, pgworld.Everything())[0], pgworld.Done()))[0].Next // a is done; b is in flight
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		batch := []*pg.Answer{w.Answer(late, pgworld.Done()), w.Answer(l, pgworld.Done())}
		out := w.Settle(batch[order[0]], batch[order[1]])
		if slow, right := out[order[0]], out[order[1]]; !slow.Fenced || slow.Next != nil || right.Fenced ||
			right.Next == nil || right.Next.ID().Seq != l.ID().Seq+1 {
			t.Fatalf("%+v", out)
		} else {
			l = right.Next
		}
		pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	}
	if l.ID() != ids[3] {
		t.Errorf("in flight is %s, want the fourth", l.ID())
	}
}

func TestAnAnswerUnderALeaseThatEndedItsTransactionChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	ids := w.Post("q", "T", "a", "b")
	l := w.Claim(w.Node("n"), pgworld.Everything())[0]
	w.Settle(w.Answer(l, pgworld.Done()))
	for _, again := range []outbox.Answer{{Class: outbox.ClassRetry, Code: "20203"}, {Class: outbox.ClassBlocked},
		{Result: outbox.Result{Hash: "0xab"}}} {
		if out := w.Settle(w.Answer(l, again)); !out[0].Fenced {
			t.Errorf("%+v was recorded: %+v", again, out)
		}
	}
	if _, err := w.S.Settle(w.Ctx, []*pg.Answer{w.Answer(l, pgworld.Done())}); err == nil {
		t.Error("a second outcome was recorded")
	}
	if w.State(ids[0]) != outbox.DONE || w.State(ids[1]) != outbox.DISPATCHING {
		t.Error(w.State(ids[0]), w.State(ids[1]))
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

func TestALazyRowLeavesNeitherFeeNorPinToTheNext(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", func(d *outbox.Dispatcher) { d.Pool = "p" })
	w.Sender("p", "acct-1", "acct-2")
	pinned := w.Sub("q", "T", "a")
	pinned.Sender = "acct-1"
	out, err := w.S.Ingest(w.Ctx, []*pg.Submission{pinned, w.Sub("q", "T", "b"), w.Sub("q", "T", "c")}, false)
	w.Must(err)
	n := w.Node("n")
	l := w.Claim(n, pgworld.Everything())[0]
	// its outcome is unknown; the answer named a fee
	w.Settle(w.Answer(l, outbox.Answer{Class: outbox.ClassAmbiguous, Result: outbox.Result{Fee: "100"}}))
	woken, err := w.S.Wake(w.Ctx, n, 10, 10)
	w.Must(err)
	l = w.Settle(w.Answer(woken.Leases[0], pgworld.Done()))[0].Next
	if l == nil || l.ID() != out[1].ID {
		t.Fatalf("next is %+v", l)
	}
	var fee string
	var pin int
	if w.Scan(`SELECT coalesce(fee, ''), coalesce(pin_sender_id, 0) FROM postern.queue`, &fee, &pin); fee != "" ||
		pin != 0 {
		t.Errorf("the second is in flight with the fee %q and the pin %d of the first", fee, pin)
	}
	w.Later(time.Second)
}
