package pg_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
)

// TestAClaimLeavesWhatWasGivenBackMeanwhile: between the snapshot and the locks of a claim somebody else
// takes the queue and gives it back; its ready row is another one then.
func TestAClaimLeavesWhatWasGivenBackMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	id := w.post("q", "T", "a")[0]
	n1, n2 := w.node("n1"), w.node("n2")
	late, open := w.lateComer()
	claimed := make(chan []*pg.Lease)
	go func() {
		l, _, err := late.s.Claim(w.ctx, n2, everything())
		if err != nil {
			t.Error(err)
		}
		claimed <- l
	}()
	w.awaitBlocked(late.pid)
	w.settle(w.answer(w.claim(n1, everything())[0], outbox.Answer{Class: outbox.ClassRejected, Code: "500"}))
	next := w.post("q", "T", "b")[0] // ready once more, at the same time by the clock
	open()
	if l := <-claimed; len(l) != 0 {
		t.Errorf("the late claim took %s by a row that is gone", leases(l))
	}
	if l := w.claim(n2, everything()); len(l) != 1 || l[0].ID() != next {
		t.Errorf("claimed %s, want the second", leases(l))
	}
	if w.state(id) != outbox.FAILED {
		t.Error(w.state(id))
	}
}

// TestAClaimNeverWaits: for the rows that levers and configuration lock.
func TestAClaimNeverWaits(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]string{
		"queue":      `SELECT FROM postern.queue FOR UPDATE`,
		"queue_name": `SELECT FROM postern.queue_name FOR UPDATE`,
		"sender":     `SELECT FROM postern.sender FOR UPDATE`,
		"lane":       `SELECT FROM postern.lane FOR UPDATE`,
		"dispatcher": `SELECT FROM postern.dispatcher FOR UPDATE`,
		"node":       `SELECT FROM postern.node FOR UPDATE`,
		"timer":      `SELECT FROM postern.timer FOR UPDATE`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.dispatcher("T", func(d *outbox.Dispatcher) { d.Pool = "p" })
			w.dispatcher("U", func(d *outbox.Dispatcher) { d.Exclusive = "type" })
			w.sender("p", "acct-1")
			w.post("q", "T", "a")
			w.post("r", "U", "b")
			n := w.node("n")
			tx, err := w.s.Pool().Begin(w.ctx)
			w.must(err)
			defer tx.Rollback(w.ctx)
			_, err = tx.Exec(w.ctx, lock)
			w.must(err)
			conn := w.second(1)
			_, err = conn.Exec(w.ctx, `SET lock_timeout = 1`) // any wait at all is an error
			w.must(err)
			o, err := stores.Open(w.ctx, conn, quiet)
			w.must(err)
			o.SetNow(&w.now)
			if _, _, err := o.Claim(w.ctx, n, everything()); err != nil {
				t.Errorf("claim: %v", err)
			}
			if _, err := o.Wake(w.ctx, n, 10, 10); err != nil {
				t.Errorf("wake: %v", err)
			}
			if _, err := o.Release(w.ctx); err != nil {
				t.Errorf("release: %v", err)
			}
		})
	}
}

func TestPausedIsAFlagAndNoPhase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	ids := w.post("q", "T", "a", "b")
	n := w.node("n")
	l := w.claim(n, everything())[0]
	pause := func(on bool) {
		_, err := w.s.PauseQueue(w.ctx, w.by, "q", on)
		w.must(err)
		holdsTrue(t, w.ctx, w.s.Pool())
	}
	pause(true)
	if w.state(ids[0]) != outbox.DISPATCHING {
		t.Errorf("paused in flight: %s", w.state(ids[0]))
	}
	if out := w.settle(w.answer(l, done())); out[0].Fenced || out[0].Next != nil || w.state(ids[0]) != outbox.DONE {
		t.Errorf("what was in flight when it was paused: %+v", out)
	}
	holdsTrue(t, w.ctx, w.s.Pool())
	w.post("q", "T", "c") // posts are accepted all the while
	if l := w.claim(n, everything()); len(l) != 0 {
		t.Errorf("claimed %s of a paused queue", leases(l))
	}
	pause(false)
	if got := strings.Join(w.work(n), ""); got != "bc" {
		t.Errorf("worked off %q", got)
	}
	holdsTrue(t, w.ctx, w.s.Pool())
}

func TestASenderNeverServesTwoQueues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", func(d *outbox.Dispatcher) { d.Pool = "p" })
	w.sender("p", "acct-1")
	w.post("q", "T", "a")
	w.post("r", "T", "b")
	n := w.node("n")
	if l := w.claim(n, everything()); len(l) != 1 {
		t.Fatalf("claimed %s with one sender", leases(l))
	}
	if l := w.claim(n, everything()); len(l) != 0 {
		t.Errorf("claimed %s without a sender", leases(l))
	}
	_, err := w.s.Pool().Exec(w.ctx, `INSERT INTO postern.sender (context_id, pool_id, account, queue_id) SELECT context_id, pool_id, 'acct-2', queue_id FROM postern.sender`)
	if err == nil || !strings.Contains(err.Error(), "one_queue_per_sender") {
		t.Errorf("a second sender of a queue: %v", err)
	}
}

// TestACrashInTheMiddleOfALazyRun resumes at the position that the outcomes show.
func TestACrashInTheMiddleOfALazyRun(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	a.flying(2, "a", "b", "c", "d")
	held, finish := hold(a.s, 1)
	ended := make(chan error)
	go func() { // the process dies in this settle, before it is committed
		_, err := a.s.Settle(a.ctx, []*pg.Answer{a.answer(a.lease, done())})
		ended <- err
	}()
	<-held
	finish(errors.New("crash"))
	if <-ended == nil {
		t.Fatal("committed")
	}
	var head, cur int64
	if a.scan(`SELECT head_seq, cur_seq FROM postern.queue q JOIN postern.queue_name USING (queue_id) WHERE name = 'q'`, &head, &cur); head != 1 || cur != 1 {
		t.Fatalf("the row names %d and %d: this is no lazy run", head, cur)
	}
	a.stale()
	_, err := a.s.Bury(a.ctx)
	a.must(err)
	_, err = a.s.Release(a.ctx)
	a.must(err)
	holdsTrue(t, a.ctx, a.s.Pool())
	l := a.claim(a.n2, everything())
	if len(l) != 1 || l[0].ID() != a.ids[2] || !l[0].Resume || l[0].Attempt != 1 {
		t.Fatalf("resumed %s", leases(l))
	}
	for next := l[0]; next != nil; {
		next = a.settle(a.answer(next, done()))[0].Next
	}
	for i, id := range a.ids {
		if a.state(id) != outbox.DONE {
			t.Errorf("%d is %s", i+1, a.state(id))
		}
	}
	holdsTrue(t, a.ctx, a.s.Pool())
}

func TestALeverInALazyRunFindsTheHead(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	a.flying(2, "a", "b", "c", "d", "e")
	if _, err := a.s.Cancel(a.ctx, a.by, a.ids[2]); err == nil {
		t.Error("what is in flight was cancelled")
	}
	if _, err := a.s.Cancel(a.ctx, a.by, a.ids[1]); err == nil {
		t.Error("what is done was cancelled")
	}
	if _, err := a.s.Cancel(a.ctx, a.by, a.ids[3]); err != nil {
		t.Error(err)
	}
	var head, cur int64
	if a.scan(`SELECT head_seq, cur_seq FROM postern.queue q JOIN postern.queue_name USING (queue_id) WHERE name = 'q'`, &head, &cur); head != 3 || cur != 3 {
		t.Errorf("the row names %d and %d, want 3", head, cur)
	}
	holdsTrue(t, a.ctx, a.s.Pool())
	if out := a.settle(a.answer(a.lease, done())); out[0].Next == nil || out[0].Next.ID() != a.ids[4] {
		t.Errorf("after the third: %+v", out[0].Next)
	}
	holdsTrue(t, a.ctx, a.s.Pool())
	if _, err := a.s.Abandon(a.ctx, a.by, a.ids[4]); err != nil || a.state(a.ids[4]) != outbox.UNRESOLVED {
		t.Error(err, a.state(a.ids[4]))
	}
	holdsTrue(t, a.ctx, a.s.Pool())
}

func TestTheDepthIsExactInALazyRun(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	_, err := a.s.PutQueue(a.ctx, a.by, pg.Queue{Name: "q", Priority: "Med", MaxDepth: 3, WhenFull: "refuse", OnFailure: "continue"}, 0)
	a.must(err)
	a.flying(2, "a", "b", "c") // one is left
	depth := func(want int64) {
		t.Helper()
		q, err := a.s.Queue(a.ctx, a.id, "q")
		a.must(err)
		var seen int64
		if a.scan(`SELECT depth FROM postern.queues WHERE queue = 'q'`, &seen); q.Depth != want || seen != want {
			t.Errorf("depth %d, in the view %d, want %d", q.Depth, seen, want)
		}
	}
	depth(1)
	ids := a.post("q", "T", "d", "e")
	depth(3)
	if out, err := a.s.Ingest(a.ctx, []*pg.Submission{a.sub("q", "T", "f")}, false); err != nil || out[0].Err == nil {
		t.Errorf("a fourth was accepted: %+v %v", out, err)
	}
	_, err = a.s.Cancel(a.ctx, a.by, ids[1])
	a.must(err)
	depth(2)
	a.post("q", "T", "g")
	depth(3)
	holdsTrue(t, a.ctx, a.s.Pool())
}

// TestACancelWhileTheWorkerIsAskedIsCarriedOutNext: what was decided without knowing of it does not go out.
func TestACancelWhileTheWorkerIsAskedIsCarriedOutNext(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	a.failing()
	w, err := a.s.Wake(a.ctx, a.n2, 10, 10)
	a.must(err)
	a.lease = w.Leases[0]
	if r, err := a.s.Cancel(a.ctx, a.by, a.ids[0]); err != nil || !r.Pending {
		t.Fatal(r, err)
	}
	a.elapsed()
	if out := a.settle(a.answers["elapsed"])[0]; out.Next != nil || out.Fenced {
		t.Fatalf("the next attempt was handed out: %+v", out)
	}
	if a.state(a.ids[0]) != outbox.RETRY {
		t.Fatal(a.state(a.ids[0]))
	}
	holdsTrue(t, a.ctx, a.s.Pool())
	w, err = a.s.Wake(a.ctx, a.n2, 10, 10)
	a.must(err)
	if len(w.Leases) != 1 || !w.Leases[0].Cancelling {
		t.Fatalf("woken %s", leases(w.Leases))
	}
	a.lease = w.Leases[0]
	a.elapsed()
	a.settle(a.answers["elapsed"])
	if a.state(a.ids[0]) != outbox.CANCELLED {
		t.Fatal(a.state(a.ids[0]))
	}
	holdsTrue(t, a.ctx, a.s.Pool())
}
