package pg_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// work claims what is ready and answers done until nothing is left; it returns the uids in the order of
// their calls.
func (w *world) work(n pg.Node) (uids []string) {
	w.T.Helper()
	for {
		list := w.Claim(n, pgworld.Everything())
		if len(list) == 0 {
			return uids
		}
		for _, l := range list {
			for ; l != nil; l = w.Settle(w.Answer(l, pgworld.Done()))[0].Next {
				uids = append(uids, l.Task.UID)
			}
		}
	}
}

func TestAQueueTwiceInABatchGetsDensePositions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	ids := func() (ids []outbox.ID) {
		var subs []*pg.Submission
		for i, q := range []string{"b", "a", "b", "a", "b"} {
			subs = append(subs, w.Sub(q, "T", fmt.Sprint("u", i)))
		}
		out, err := w.S.Ingest(w.Ctx, subs, false)
		w.Must(err)
		for _, a := range out {
			w.Must(a.Err)
			ids = append(ids, a.ID)
		}
		return ids
	}()
	for i, want := range []int64{1, 1, 2, 2, 3} {
		if ids[i].Seq != want {
			t.Errorf("item %d is at %d, want %d", i, ids[i].Seq, want)
		}
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	if got := fmt.Sprint(w.work(w.Node("n"))); got != "[u0 u2 u4 u1 u3]" && got != "[u1 u3 u0 u2 u4]" {
		t.Errorf("worked off %s", got)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

func TestIngestOverTheSameQueuesInOppositeOrdersNeverDeadlocks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.Post("a", "T", "a0")
	w.Post("b", "T", "b0")
	const rounds = 40
	var wg sync.WaitGroup
	for g, order := range [][]string{{"a", "b"}, {"b", "a"}, {"a", "b"}, {"b", "a"}} {
		wg.Go(func() {
			for i := range rounds {
				out, err := w.S.Ingest(w.Ctx, []*pg.Submission{w.Sub(order[0], "T", fmt.Sprint(g, "-", i, "x")), w.Sub(order[1], "T", fmt.Sprint(g, "-", i, "y"))}, false)
				if err != nil || out[0].Err != nil || out[1].Err != nil {
					t.Error(err, out)
				}
			}
		})
	}
	wg.Wait()
	var deadlocks, tails int64
	w.Scan(`SELECT (SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()), (SELECT sum(tail_seq) FROM postern.queue)`, &deadlocks, &tails)
	if deadlocks != 0 || tails != 8*rounds+2 {
		t.Errorf("%d deadlocks, %d positions", deadlocks, tails)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

func TestTheDayNeverFallsAlongAQueueWhenTheClockGoesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.Later(24 * time.Hour)
	tomorrow := w.Post("q", "T", "a")[0]
	w.Later(-24 * time.Hour)
	again := w.Post("q", "T", "b")[0]
	fresh := w.Post("r", "T", "c")[0]
	if again.Day != tomorrow.Day || fresh.Day != tomorrow.Day-1 {
		t.Errorf("days %d, %d; a new queue %d", tomorrow.Day, again.Day, fresh.Day)
	}
	n := w.Node("n")
	w.work(n)
	if w.State(again) != outbox.DONE {
		t.Error(w.State(again))
	}
	if _, err := w.S.Reap(w.Ctx, w.Now.Add(time.Hour), 10); err != nil {
		t.Fatal(err)
	}
	if revived := w.Post("q", "T", "d")[0]; revived.Day != tomorrow.Day || revived.Seq != 3 {
		t.Errorf("after the reap %+v", revived)
	}
	w.work(n)
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

// A queue that is configured or in use stays, and keeps no queue behind it from going, however few a reap takes at
// once.
func TestAReapGoesPastWhatStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	for i := range 9 {
		w.Post(fmt.Sprint("q", i), "T", fmt.Sprint("a", i))
	}
	w.work(w.Node("n"))
	_, err := w.S.Pool().Exec(w.Ctx, `UPDATE postern.queue_name SET configured = true WHERE name IN ('q0', 'q1', 'q2', 'q5')`)
	w.Must(err)
	tx := w.Begin(w.S.Pool())
	_, err = tx.Exec(w.Ctx, `SELECT FROM postern.queue_name WHERE name = 'q3' FOR UPDATE`)
	w.Must(err)
	if n, err := w.S.Reap(w.Ctx, w.Now.Add(time.Hour), 2); n != 4 || err != nil {
		t.Errorf("%d were taken out, %v", n, err)
	}
	w.Must(tx.Rollback(w.Ctx))
	if n, err := w.S.Reap(w.Ctx, w.Now.Add(time.Hour), 2); n != 1 || err != nil {
		t.Errorf("%d were taken out afterwards, %v", n, err)
	}
	w.Same(w.Lines(`SELECT n.name FROM postern.queue q JOIN postern.queue_name n USING (queue_id) ORDER BY 1`), "q0", "q1", "q2", "q5")
}

func TestPositionsAndFencesGoOnAfterAReapAlsoForAProcessThatRemembersTheQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	const queues = 12 // more than a transaction is tried again
	name := func(i int) string { return fmt.Sprint("q", i) }
	warm := w.Other().S
	fences := map[int64]int64{}
	n := w.Node("n")
	for i := range queues {
		out, err := warm.Ingest(w.Ctx, []*pg.Submission{w.Sub(name(i), "T", fmt.Sprint("a", i))}, false)
		w.Must(err)
		w.Must(out[0].Err)
	}
	for _, l := range w.Claim(n, pgworld.Everything()) {
		fences[l.ID().Queue] = l.Fence
		w.Settle(w.Answer(l, pgworld.Done()))
	}
	reaped, err := w.S.Reap(w.Ctx, w.Now.Add(time.Hour), 100)
	w.Must(err)
	if reaped != queues {
		t.Fatalf("reaped %d", reaped)
	}
	var subs []*pg.Submission
	for i := range queues {
		subs = append(subs, w.Sub(name(i), "T", fmt.Sprint("b", i)))
	}
	out, err := warm.Ingest(w.Ctx, subs, false)
	w.Must(err)
	for _, a := range out {
		w.Must(a.Err)
		if a.ID.Seq != 2 {
			t.Errorf("position %d after the reap, want 2", a.ID.Seq)
		}
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	for _, l := range w.Claim(n, pgworld.Everything()) {
		if l.Fence <= fences[l.ID().Queue] {
			t.Errorf("queue %s: fence %d after %d", l.Queue, l.Fence, fences[l.ID().Queue])
		}
	}
}

// A process remembers the row of a queue as it was before the reap, and with a later era than the new row has.
func TestAQueueThatWasReapedIsFoundByAProcessThatRemembersALaterEra(t *testing.T) {
	t.Parallel()
	for how, put := range map[string]func(*world, *stores.Store, string){
		"posted": func(w *world, s *stores.Store, uid string) {
			out, err := s.Ingest(w.Ctx, []*pg.Submission{w.Sub("q", "T", uid)}, false)
			w.Must(err)
			w.Must(out[0].Err)
		},
		"staged": func(w *world, s *stores.Store, uid string) {
			w.Must(w.submit(w.S.Pool(), "q", "T", uid))
			if out := w.drainAll(s); out.Rows != 1 {
				w.T.Errorf("%d rows of %s were drained", out.Rows, uid)
			}
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Dispatcher("T", nil)
			warm := w.Other().S
			put(w, warm, "a")
			_, err := w.S.Pool().Exec(w.Ctx, `UPDATE postern.queue SET era = era + 3`)
			w.Must(err)
			put(w, warm, "b") // sees the era
			n := w.Node("n")
			if got := fmt.Sprint(w.work(n)); got != "[a b]" {
				t.Errorf("worked off %s", got)
			}
			if reaped, err := w.S.Reap(w.Ctx, w.Now.Add(time.Hour), 100); err != nil || reaped != 1 {
				t.Fatalf("%d reaped, %v", reaped, err)
			}
			put(w, w.S, "c")
			var era, seq int
			w.Scan(`SELECT era FROM postern.queue`, &era)
			put(w, warm, "d")
			if w.Scan(`SELECT tail_seq FROM postern.queue`, &seq); era != 0 || seq != 4 {
				t.Errorf("in era %d after the reap, and the last of four is at %d", era, seq)
			}
			if got := fmt.Sprint(w.work(n)); got != "[c d]" {
				t.Errorf("worked off %s", got)
			}
			pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
		})
	}
}

func TestABatchMayNeedMoreNewLanesThanATransactionIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", func(d *outbox.Dispatcher) { d.Exclusive = "field:/uid" })
	var subs []*pg.Submission
	for i := range 30 {
		subs = append(subs, w.Sub(fmt.Sprint("q", i), "T", fmt.Sprint("u", i)))
	}
	out, err := w.S.Ingest(w.Ctx, subs, false)
	w.Must(err)
	for _, a := range out {
		w.Must(a.Err)
	}
	if got := len(w.work(w.Node("n"))); got != 30 {
		t.Errorf("worked off %d of 30", got)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

func TestAnAtomicBatchThatIsRefusedNamesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	known := w.Post("q", "T", "known")[0]
	out, err := w.S.Ingest(w.Ctx, []*pg.Submission{w.Sub("q", "T", "a"), w.Sub("q", "T", "known"), w.Sub("q", "no such type", "b"), w.Sub("q", "T", "a")}, true)
	w.Must(err)
	if !out[0].ID.IsZero() || !out[3].ID.IsZero() || out[2].Err == nil || out[1].ID != known || !out[1].Replay {
		t.Errorf("%+v", out)
	}
	var n int
	if w.Scan(`SELECT count(*) FROM postern.task`, &n); n != 1 {
		t.Errorf("%d tasks", n)
	}
}

// TestAQueueThatDropsItsOldestTakesWhateverComes: posts of one queue are gathered into one commit, and
// each makes room for itself.
func TestAQueueThatDropsItsOldestTakesWhateverComes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	_, err := w.S.PutQueue(w.Ctx, w.By, pg.Queue{Name: "q", Priority: "Med", MaxDepth: 3, WhenFull: "drop_oldest", OnFailure: "continue"}, 0)
	w.Must(err)
	ids := w.Post("q", "T", "a", "b", "c", "d", "e")
	ids = append(ids, w.Post("q", "T", "f", "g")...)
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	for i, id := range ids {
		want := outbox.CANCELLED
		if i >= 4 {
			want = outbox.WAITING
		}
		if id.Seq != int64(i+1) || w.State(id) != want {
			t.Errorf("%d is at %d, %s, want %s", i+1, id.Seq, w.State(id), want)
		}
	}
	n := w.Node("n")
	l := w.Claim(n, pgworld.Everything())[0] // a transaction in flight is not dropped
	more := w.Post("q", "T", "h", "i", "j")
	if w.State(l.ID()) != outbox.DISPATCHING || w.State(more[2]) != outbox.WAITING || w.State(more[0]) != outbox.CANCELLED {
		t.Error(w.State(l.ID()), w.State(more[0]), w.State(more[2]))
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	// an atomic batch is refused, since it would drop some of its own
	var subs []*pg.Submission
	for i := range 4 {
		subs = append(subs, w.Sub("q", "T", fmt.Sprint("atomic", i)))
	}
	out, err := w.S.Ingest(w.Ctx, subs, true)
	if err != nil || out[3].Err == nil {
		t.Errorf("%+v %v", out, err)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}
