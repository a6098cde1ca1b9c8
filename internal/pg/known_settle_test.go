package pg_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
)

// TestNoWakeUpIsLost lets a post and the settle that finds the queue empty meet, in both orders, for one queue and for two.
func TestNoWakeUpIsLost(t *testing.T) {
	t.Parallel()
	both := []string{"q", "r"}
	for _, first := range []string{"post", "settle"} {
		for i, end := range []error{nil, errors.New("rolled back"), nil, errors.New("rolled back")} {
			queues := both[:1+i/2]
			t.Run(fmt.Sprintf("%s first, ended by %v, in %d", first, end, len(queues)), func(t *testing.T) {
				w := newWorld(t)
				w.dispatcher("T", nil)
				for _, q := range queues {
					w.post(q, "T", q+"a")
				}
				n := w.node("n")
				leases := w.claim(n, everything())
				o := w.other()
				var next []*pg.Lease
				post := func(s *stores.Store) {
					var subs []*pg.Submission
					for _, q := range queues {
						subs = append(subs, w.sub(q, "T", q+"b"))
					}
					out, err := s.Ingest(w.ctx, subs, false)
					for i := range out {
						if err == nil && out[i].Err != nil {
							t.Error(out[i].Err)
						}
					}
				}
				settle := func(s *stores.Store) {
					var answers []*pg.Answer
					for _, l := range leases {
						answers = append(answers, w.answer(l, done()))
					}
					next = nil
					out, err := s.Settle(w.ctx, answers)
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
				warm(w, o.s, queues...)
				held, finish := hold(w.s, 1)
				doneA, doneB := make(chan bool), make(chan bool)
				go func() { a(w.s); close(doneA) }()
				<-held
				go func() { b(o.s); close(doneB) }()
				w.awaitBlocked(o.pid)
				finish(end)
				<-doneA
				<-doneB
				holdsTrue(t, w.ctx, w.s.Pool())
				// whatever became of the first, nothing that is stored stays undone
				if end != nil && first == "settle" {
					settle(w.s)
				}
				for leases = next; len(leases) > 0; leases = next {
					settle(w.s)
				}
				w.work(n)
				var waiting int
				if w.scan(`SELECT count(*) FROM postern.tx WHERE state <> 'DONE'`, &waiting); waiting != 0 {
					t.Errorf("%d transactions are not done", waiting)
				}
			})
		}
	}
}

// warm lets a store learn the ids of queues without a post.
func warm(w *world, s *stores.Store, queues ...string) {
	for _, q := range queues {
		_, err := s.PauseQueue(w.ctx, w.by, q, false)
		w.must(err)
	}
}

func TestTheBodyOfAHeadThatIsNewerThanTheSnapshotIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	w.post("q", "T", "a")
	n := w.node("n")
	l := w.claim(n, everything())[0]
	o := w.other()
	held, finish := hold(w.s, 1)
	posted, settled := make(chan bool), make(chan pg.Settled)
	go func() { w.post("q", "T", "b"); close(posted) }()
	<-held
	go func() { // its statement began before the post's commit, and waits for the row
		out, err := o.s.Settle(w.ctx, []*pg.Answer{w.answer(l, done())})
		if err != nil {
			t.Error(err)
		}
		settled <- out[0]
	}()
	w.awaitBlocked(o.pid)
	finish(nil)
	<-posted
	if out := <-settled; out.Next == nil || out.Next.Task.UID != "b" {
		t.Errorf("next is %+v", out.Next)
	}
	holdsTrue(t, w.ctx, w.s.Pool())
}

func TestWhatIsCancelledWhileASettleWaitsForTheRowIsNotHandedOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	ids := w.post("q", "T", "a", "b", "c")
	l := w.claim(w.node("n"), everything())[0]
	o := w.other()
	held, finish := hold(w.s, 1)
	cancelled, settled := make(chan bool), make(chan pg.Settled)
	go func() {
		if _, err := w.s.Cancel(w.ctx, w.by, ids[1]); err != nil {
			t.Error(err)
		}
		close(cancelled)
	}()
	<-held
	go func() {
		out, err := o.s.Settle(w.ctx, []*pg.Answer{w.answer(l, done())})
		if err != nil {
			t.Error(err)
		}
		settled <- out[0]
	}()
	w.awaitBlocked(o.pid)
	finish(nil)
	<-cancelled
	if out := <-settled; out.Next == nil || out.Next.ID() != ids[2] {
		t.Errorf("next is %+v", out.Next)
	}
	if w.state(ids[1]) != outbox.CANCELLED || w.state(ids[2]) != outbox.DISPATCHING {
		t.Error(w.state(ids[1]), w.state(ids[2]))
	}
	holdsTrue(t, w.ctx, w.s.Pool())
}

// TestNothingIsHandedOutBeforeTheOneBeforeItIsDurable: hot-path.md, statement 4.
func TestNothingIsHandedOutBeforeTheOneBeforeItIsDurable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	ids := w.post("q", "T", "a", "b")
	l := w.claim(w.node("n"), everything())[0]
	held, finish := hold(w.s, 1)
	handed := make(chan error)
	go func() {
		_, err := w.s.Settle(w.ctx, []*pg.Answer{w.answer(l, done())})
		handed <- err
	}()
	<-held
	select {
	case <-handed:
		t.Error("the next was handed out before the commit")
	default:
	}
	if w.state(ids[0]) != outbox.DISPATCHING || w.state(ids[1]) != outbox.WAITING {
		t.Error(w.state(ids[0]), w.state(ids[1]))
	}
	finish(errors.New("crash"))
	if err := <-handed; err == nil {
		t.Error("a settle that was not committed says that it was")
	}
	if w.state(ids[0]) != outbox.DISPATCHING || w.state(ids[1]) != outbox.WAITING {
		t.Error(w.state(ids[0]), w.state(ids[1]))
	}
}

// TestALateAnswerBesideTheOneThatCounts: a process that was buried and came back may settle both in one
// batch, since its settles are gathered.
func TestALateAnswerBesideTheOneThatCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	ids := w.post("q", "T", "a", "b", "c", "d")
	n := w.node("n")
	late := w.claim(n, everything())[0]
	_, err := w.s.GiveUpAll(w.ctx, n)
	w.must(err)
	l := w.settle(w.answer(w.claim(n, everything())[0], done()))[0].Next // a is done; b is in flight
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		batch := []*pg.Answer{w.answer(late, done()), w.answer(l, done())}
		out := w.settle(batch[order[0]], batch[order[1]])
		if slow, right := out[order[0]], out[order[1]]; !slow.Fenced || slow.Next != nil || right.Fenced || right.Next == nil || right.Next.ID().Seq != l.ID().Seq+1 {
			t.Fatalf("%+v", out)
		} else {
			l = right.Next
		}
		holdsTrue(t, w.ctx, w.s.Pool())
	}
	if l.ID() != ids[3] {
		t.Errorf("in flight is %s, want the fourth", l.ID())
	}
}

func TestAnAnswerUnderALeaseThatEndedItsTransactionChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	ids := w.post("q", "T", "a", "b")
	l := w.claim(w.node("n"), everything())[0]
	w.settle(w.answer(l, done()))
	for _, again := range []outbox.Answer{{Class: outbox.ClassRetry, Code: "20203"}, {Class: outbox.ClassBlocked}, {Result: outbox.Result{Hash: "0xab"}}} {
		if out := w.settle(w.answer(l, again)); !out[0].Fenced {
			t.Errorf("%+v was recorded: %+v", again, out)
		}
	}
	if _, err := w.s.Settle(w.ctx, []*pg.Answer{w.answer(l, done())}); err == nil {
		t.Error("a second outcome was recorded")
	}
	if w.state(ids[0]) != outbox.DONE || w.state(ids[1]) != outbox.DISPATCHING {
		t.Error(w.state(ids[0]), w.state(ids[1]))
	}
	holdsTrue(t, w.ctx, w.s.Pool())
}

func TestALazyRowLeavesNeitherFeeNorPinToTheNext(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", func(d *outbox.Dispatcher) { d.Pool = "p" })
	w.sender("p", "acct-1", "acct-2")
	pinned := w.sub("q", "T", "a")
	pinned.Sender = "acct-1"
	out, err := w.s.Ingest(w.ctx, []*pg.Submission{pinned, w.sub("q", "T", "b"), w.sub("q", "T", "c")}, false)
	w.must(err)
	n := w.node("n")
	l := w.claim(n, everything())[0]
	// nobody knows what came of it; the answer named a fee
	w.settle(w.answer(l, outbox.Answer{Class: outbox.ClassAmbiguous, Result: outbox.Result{Fee: "100"}}))
	woken, err := w.s.Wake(w.ctx, n, 10, 10)
	w.must(err)
	l = w.settle(w.answer(woken.Leases[0], done()))[0].Next
	if l == nil || l.ID() != out[1].ID {
		t.Fatalf("next is %+v", l)
	}
	var fee string
	var pin int
	if w.scan(`SELECT coalesce(fee, ''), coalesce(pin_sender_id, 0) FROM postern.queue`, &fee, &pin); fee != "" || pin != 0 {
		t.Errorf("the second is in flight with the fee %q and the pin %d of the first", fee, pin)
	}
	w.later(time.Second)
}
