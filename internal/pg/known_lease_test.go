package pg_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// TestAClaimLeavesWhatWasGivenBackMeanwhile: between the snapshot and the locks of a claim somebody else
// takes the queue and gives it back; its ready row is another one then.
func TestAClaimLeavesWhatWasGivenBackMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	id := w.Post("q", "T", "a")[0]
	n1, n2 := w.Node("n1"), w.Node("n2")
	late, open := w.lateComer()
	claimed := make(chan []*pg.Lease)
	go func() {
		l, _, err := late.S.Claim(w.Ctx, n2, pgworld.Everything())
		if err != nil {
			t.Error(err)
		}
		claimed <- l
	}()
	w.AwaitBlocked(late.PID)
	w.Settle(w.Answer(w.Claim(n1, pgworld.Everything())[0], outbox.Answer{Class: outbox.ClassRejected, Code: "500"}))
	next := w.Post("q", "T", "b")[0] // ready once more, at the same time by the clock
	open()
	if l := <-claimed; len(l) != 0 {
		t.Errorf("the late claim took %s by a row that is gone", leases(l))
	}
	if l := w.Claim(n2, pgworld.Everything()); len(l) != 1 || l[0].ID() != next {
		t.Errorf("claimed %s, want the second", leases(l))
	}
	if w.State(id) != outbox.FAILED {
		t.Error(w.State(id))
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
			w.Dispatcher("T", func(d *outbox.Dispatcher) { d.Pool = "p" })
			w.Dispatcher("U", func(d *outbox.Dispatcher) { d.Exclusive = "type" })
			w.Sender("p", "acct-1")
			w.Post("q", "T", "a")
			w.Post("r", "U", "b")
			n := w.Node("n")
			tx, err := w.S.Pool().Begin(w.Ctx)
			w.Must(err)
			defer tx.Rollback(w.Ctx)
			_, err = tx.Exec(w.Ctx, lock)
			w.Must(err)
			conn := w.Second(1)
			_, err = conn.Exec(w.Ctx, `SET lock_timeout = 1`) // any wait at all is an error
			w.Must(err)
			o, err := stores.Open(w.Ctx, conn, pgworld.Quiet)
			w.Must(err)
			o.SetNow(&w.Now)
			if _, _, err := o.Claim(w.Ctx, n, pgworld.Everything()); err != nil {
				t.Errorf("claim: %v", err)
			}
			if _, err := o.Wake(w.Ctx, n, 10, 10); err != nil {
				t.Errorf("wake: %v", err)
			}
			if _, err := o.Release(w.Ctx); err != nil {
				t.Errorf("release: %v", err)
			}
		})
	}
}

func TestPausedIsAFlagAndNoPhase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	ids := w.Post("q", "T", "a", "b")
	n := w.Node("n")
	l := w.Claim(n, pgworld.Everything())[0]
	pause := func(on bool) {
		_, err := w.S.PauseQueue(w.Ctx, w.By, "q", on)
		w.Must(err)
		pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	}
	pause(true)
	if w.State(ids[0]) != outbox.DISPATCHING {
		t.Errorf("paused in flight: %s", w.State(ids[0]))
	}
	if out := w.Settle(w.Answer(l, pgworld.Done())); out[0].Fenced || out[0].Next != nil || w.State(ids[0]) != outbox.DONE {
		t.Errorf("what was in flight when it was paused: %+v", out)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	w.Post("q", "T", "c") // posts are accepted all the while
	if l := w.Claim(n, pgworld.Everything()); len(l) != 0 {
		t.Errorf("claimed %s of a paused queue", leases(l))
	}
	pause(false)
	if got := strings.Join(w.work(n), ""); got != "bc" {
		t.Errorf("worked off %q", got)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

func TestASenderNeverServesTwoQueues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", func(d *outbox.Dispatcher) { d.Pool = "p" })
	w.Sender("p", "acct-1")
	w.Post("q", "T", "a")
	w.Post("r", "T", "b")
	n := w.Node("n")
	if l := w.Claim(n, pgworld.Everything()); len(l) != 1 {
		t.Fatalf("claimed %s with one sender", leases(l))
	}
	if l := w.Claim(n, pgworld.Everything()); len(l) != 0 {
		t.Errorf("claimed %s without a sender", leases(l))
	}
	_, err := w.S.Pool().Exec(w.Ctx, `INSERT INTO postern.sender (context_id, pool_id, account, queue_id) SELECT context_id, pool_id, 'acct-2', queue_id FROM postern.sender`)
	if err == nil || !strings.Contains(err.Error(), "one_queue_per_sender") {
		t.Errorf("a second sender of a queue: %v", err)
	}
}

// TestACrashInTheMiddleOfALazyRun resumes at the position that the outcomes show.
func TestACrashInTheMiddleOfALazyRun(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	a.flying(2, "a", "b", "c", "d")
	held, finish := pgworld.Hold(a.S, 1)
	ended := make(chan error)
	go func() { // the process dies in this settle, before it is committed
		_, err := a.S.Settle(a.Ctx, []*pg.Answer{a.Answer(a.lease, pgworld.Done())})
		ended <- err
	}()
	<-held
	finish(errors.New("crash"))
	if <-ended == nil {
		t.Fatal("committed")
	}
	var head, cur int64
	if a.Scan(`SELECT head_seq, cur_seq FROM postern.queue q JOIN postern.queue_name USING (queue_id) WHERE name = 'q'`, &head, &cur); head != 1 || cur != 1 {
		t.Fatalf("the row names %d and %d: this is no lazy run", head, cur)
	}
	a.stale()
	_, err := a.S.Bury(a.Ctx)
	a.Must(err)
	_, err = a.S.Release(a.Ctx)
	a.Must(err)
	pgworld.HoldsTrue(t, a.Ctx, a.S.Pool())
	l := a.Claim(a.n2, pgworld.Everything())
	if len(l) != 1 || l[0].ID() != a.ids[2] || !l[0].Resume || l[0].Attempt != 1 {
		t.Fatalf("resumed %s", leases(l))
	}
	for next := l[0]; next != nil; {
		next = a.Settle(a.Answer(next, pgworld.Done()))[0].Next
	}
	for i, id := range a.ids {
		if a.State(id) != outbox.DONE {
			t.Errorf("%d is %s", i+1, a.State(id))
		}
	}
	pgworld.HoldsTrue(t, a.Ctx, a.S.Pool())
}

func TestALeverInALazyRunFindsTheHead(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	a.flying(2, "a", "b", "c", "d", "e")
	if _, err := a.S.Cancel(a.Ctx, a.By, a.ids[2]); err == nil {
		t.Error("what is in flight was cancelled")
	}
	if _, err := a.S.Cancel(a.Ctx, a.By, a.ids[1]); err == nil {
		t.Error("what is done was cancelled")
	}
	if _, err := a.S.Cancel(a.Ctx, a.By, a.ids[3]); err != nil {
		t.Error(err)
	}
	var head, cur int64
	if a.Scan(`SELECT head_seq, cur_seq FROM postern.queue q JOIN postern.queue_name USING (queue_id) WHERE name = 'q'`, &head, &cur); head != 3 || cur != 3 {
		t.Errorf("the row names %d and %d, want 3", head, cur)
	}
	pgworld.HoldsTrue(t, a.Ctx, a.S.Pool())
	if out := a.Settle(a.Answer(a.lease, pgworld.Done())); out[0].Next == nil || out[0].Next.ID() != a.ids[4] {
		t.Errorf("after the third: %+v", out[0].Next)
	}
	pgworld.HoldsTrue(t, a.Ctx, a.S.Pool())
	if _, err := a.S.Abandon(a.Ctx, a.By, a.ids[4]); err != nil || a.State(a.ids[4]) != outbox.UNRESOLVED {
		t.Error(err, a.State(a.ids[4]))
	}
	pgworld.HoldsTrue(t, a.Ctx, a.S.Pool())
}

func TestTheDepthIsExactInALazyRun(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	_, err := a.S.PutQueue(a.Ctx, a.By, pg.Queue{Name: "q", Priority: "Med", MaxDepth: 3, WhenFull: "refuse", OnFailure: "continue"}, 0)
	a.Must(err)
	a.flying(2, "a", "b", "c") // one is left
	depth := func(want int64) {
		t.Helper()
		q, err := a.S.Queue(a.Ctx, a.ID, "q")
		a.Must(err)
		var seen int64
		if a.Scan(`SELECT depth FROM postern.queues WHERE queue = 'q'`, &seen); q.Depth != want || seen != want {
			t.Errorf("depth %d, in the view %d, want %d", q.Depth, seen, want)
		}
	}
	depth(1)
	ids := a.Post("q", "T", "d", "e")
	depth(3)
	if out, err := a.S.Ingest(a.Ctx, []*pg.Submission{a.Sub("q", "T", "f")}, false); err != nil || out[0].Err == nil {
		t.Errorf("a fourth was accepted: %+v %v", out, err)
	}
	_, err = a.S.Cancel(a.Ctx, a.By, ids[1])
	a.Must(err)
	depth(2)
	a.Post("q", "T", "g")
	depth(3)
	pgworld.HoldsTrue(t, a.Ctx, a.S.Pool())
}

// TestACancelWhileTheWorkerIsAskedIsCarriedOutNext: an attempt that was decided without knowing of the cancel does not
// go out.
func TestACancelWhileTheWorkerIsAskedIsCarriedOutNext(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	a.failing()
	w, err := a.S.Wake(a.Ctx, a.n2, 10, 10)
	a.Must(err)
	a.lease = w.Leases[0]
	if r, err := a.S.Cancel(a.Ctx, a.By, a.ids[0]); err != nil || !r.Pending {
		t.Fatal(r, err)
	}
	a.elapsed()
	if out := a.Settle(a.answers["elapsed"])[0]; out.Next != nil || out.Fenced {
		t.Fatalf("the next attempt was handed out: %+v", out)
	}
	if a.State(a.ids[0]) != outbox.RETRY {
		t.Fatal(a.State(a.ids[0]))
	}
	pgworld.HoldsTrue(t, a.Ctx, a.S.Pool())
	w, err = a.S.Wake(a.Ctx, a.n2, 10, 10)
	a.Must(err)
	if len(w.Leases) != 1 || !w.Leases[0].Cancelling {
		t.Fatalf("woken %s", leases(w.Leases))
	}
	a.lease = w.Leases[0]
	a.elapsed()
	a.Settle(a.answers["elapsed"])
	if a.State(a.ids[0]) != outbox.CANCELLED {
		t.Fatal(a.State(a.ids[0]))
	}
	pgworld.HoldsTrue(t, a.Ctx, a.S.Pool())
}
