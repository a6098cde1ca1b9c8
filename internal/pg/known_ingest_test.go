package pg_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
)

// work claims what is ready and answers done until nothing is left; it returns the uids in the order of
// their calls.
func (w *world) work(n pg.Node) (uids []string) {
	w.t.Helper()
	for {
		list := w.claim(n, everything())
		if len(list) == 0 {
			return uids
		}
		for _, l := range list {
			for ; l != nil; l = w.settle(w.answer(l, done()))[0].Next {
				uids = append(uids, l.Task.UID)
			}
		}
	}
}

// scan reads one row.
func (w *world) scan(sql string, dest ...any) {
	w.t.Helper()
	w.must(w.s.Pool().QueryRow(w.ctx, sql).Scan(dest...))
}

func TestAQueueTwiceInABatchGetsDensePositions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	ids := func() (ids []outbox.ID) {
		var subs []*pg.Submission
		for i, q := range []string{"b", "a", "b", "a", "b"} {
			subs = append(subs, w.sub(q, "T", fmt.Sprint("u", i)))
		}
		out, err := w.s.Ingest(w.ctx, subs, false)
		w.must(err)
		for _, a := range out {
			w.must(a.Err)
			ids = append(ids, a.ID)
		}
		return ids
	}()
	for i, want := range []int64{1, 1, 2, 2, 3} {
		if ids[i].Seq != want {
			t.Errorf("item %d is at %d, want %d", i, ids[i].Seq, want)
		}
	}
	holdsTrue(t, w.ctx, w.s.Pool())
	if got := fmt.Sprint(w.work(w.node("n"))); got != "[u0 u2 u4 u1 u3]" && got != "[u1 u3 u0 u2 u4]" {
		t.Errorf("worked off %s", got)
	}
	holdsTrue(t, w.ctx, w.s.Pool())
}

func TestIngestOverTheSameQueuesInOppositeOrdersNeverDeadlocks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	w.post("a", "T", "a0")
	w.post("b", "T", "b0")
	const rounds = 40
	var wg sync.WaitGroup
	for g, order := range [][]string{{"a", "b"}, {"b", "a"}, {"a", "b"}, {"b", "a"}} {
		wg.Go(func() {
			for i := range rounds {
				out, err := w.s.Ingest(w.ctx, []*pg.Submission{w.sub(order[0], "T", fmt.Sprint(g, "-", i, "x")), w.sub(order[1], "T", fmt.Sprint(g, "-", i, "y"))}, false)
				if err != nil || out[0].Err != nil || out[1].Err != nil {
					t.Error(err, out)
				}
			}
		})
	}
	wg.Wait()
	var deadlocks, tails int64
	w.scan(`SELECT (SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()), (SELECT sum(tail_seq) FROM postern.queue)`, &deadlocks, &tails)
	if deadlocks != 0 || tails != 8*rounds+2 {
		t.Errorf("%d deadlocks, %d positions", deadlocks, tails)
	}
	holdsTrue(t, w.ctx, w.s.Pool())
}

func TestTheDayNeverFallsAlongAQueueWhenTheClockGoesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	w.later(24 * time.Hour)
	tomorrow := w.post("q", "T", "a")[0]
	w.later(-24 * time.Hour)
	again := w.post("q", "T", "b")[0]
	fresh := w.post("r", "T", "c")[0]
	if again.Day != tomorrow.Day || fresh.Day != tomorrow.Day-1 {
		t.Errorf("days %d, %d; a new queue %d", tomorrow.Day, again.Day, fresh.Day)
	}
	n := w.node("n")
	w.work(n)
	if w.state(again) != outbox.DONE {
		t.Error(w.state(again))
	}
	if _, err := w.s.Reap(w.ctx, w.now.Add(time.Hour), 10); err != nil {
		t.Fatal(err)
	}
	if revived := w.post("q", "T", "d")[0]; revived.Day != tomorrow.Day || revived.Seq != 3 {
		t.Errorf("after the reap %+v", revived)
	}
	w.work(n)
	holdsTrue(t, w.ctx, w.s.Pool())
}

// What is configured or in use stays, and keeps nothing behind it from going, however few are taken at once.
func TestAReapGoesPastWhatStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	for i := range 9 {
		w.post(fmt.Sprint("q", i), "T", fmt.Sprint("a", i))
	}
	w.work(w.node("n"))
	_, err := w.s.Pool().Exec(w.ctx, `UPDATE postern.queue_name SET configured = true WHERE name IN ('q0', 'q1', 'q2', 'q5')`)
	w.must(err)
	tx := w.begin(w.s.Pool())
	_, err = tx.Exec(w.ctx, `SELECT FROM postern.queue_name WHERE name = 'q3' FOR UPDATE`)
	w.must(err)
	if n, err := w.s.Reap(w.ctx, w.now.Add(time.Hour), 2); n != 4 || err != nil {
		t.Errorf("%d were taken out, %v", n, err)
	}
	w.must(tx.Rollback(w.ctx))
	if n, err := w.s.Reap(w.ctx, w.now.Add(time.Hour), 2); n != 1 || err != nil {
		t.Errorf("%d were taken out afterwards, %v", n, err)
	}
	w.same(w.lines(`SELECT n.name FROM postern.queue q JOIN postern.queue_name n USING (queue_id) ORDER BY 1`), "q0", "q1", "q2", "q5")
}

func TestPositionsAndFencesGoOnAfterAReapAlsoForAProcessThatRemembersTheQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	const queues = 12 // more than a transaction is tried again
	name := func(i int) string { return fmt.Sprint("q", i) }
	warm := w.other().s
	fences := map[int64]int64{}
	n := w.node("n")
	for i := range queues {
		out, err := warm.Ingest(w.ctx, []*pg.Submission{w.sub(name(i), "T", fmt.Sprint("a", i))}, false)
		w.must(err)
		w.must(out[0].Err)
	}
	for _, l := range w.claim(n, everything()) {
		fences[l.ID().Queue] = l.Fence
		w.settle(w.answer(l, done()))
	}
	reaped, err := w.s.Reap(w.ctx, w.now.Add(time.Hour), 100)
	w.must(err)
	if reaped != queues {
		t.Fatalf("reaped %d", reaped)
	}
	var subs []*pg.Submission
	for i := range queues {
		subs = append(subs, w.sub(name(i), "T", fmt.Sprint("b", i)))
	}
	out, err := warm.Ingest(w.ctx, subs, false)
	w.must(err)
	for _, a := range out {
		w.must(a.Err)
		if a.ID.Seq != 2 {
			t.Errorf("position %d after the reap, want 2", a.ID.Seq)
		}
	}
	holdsTrue(t, w.ctx, w.s.Pool())
	for _, l := range w.claim(n, everything()) {
		if l.Fence <= fences[l.ID().Queue] {
			t.Errorf("queue %s: fence %d after %d", l.Queue, l.Fence, fences[l.ID().Queue])
		}
	}
}

// What a process remembers of where the row of a queue stands is of the row before the reap, and its era a later one.
func TestAQueueThatWasReapedIsFoundByAProcessThatRemembersALaterEra(t *testing.T) {
	t.Parallel()
	for how, put := range map[string]func(*world, *stores.Store, string){
		"posted": func(w *world, s *stores.Store, uid string) {
			out, err := s.Ingest(w.ctx, []*pg.Submission{w.sub("q", "T", uid)}, false)
			w.must(err)
			w.must(out[0].Err)
		},
		"staged": func(w *world, s *stores.Store, uid string) {
			w.must(w.submit(w.s.Pool(), "q", "T", uid))
			if out := w.drainAll(s); out.Rows != 1 {
				w.t.Errorf("%d rows of %s were drained", out.Rows, uid)
			}
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.dispatcher("T", nil)
			warm := w.other().s
			put(w, warm, "a")
			_, err := w.s.Pool().Exec(w.ctx, `UPDATE postern.queue SET era = era + 3`)
			w.must(err)
			put(w, warm, "b") // sees the era
			n := w.node("n")
			if got := fmt.Sprint(w.work(n)); got != "[a b]" {
				t.Errorf("worked off %s", got)
			}
			if reaped, err := w.s.Reap(w.ctx, w.now.Add(time.Hour), 100); err != nil || reaped != 1 {
				t.Fatalf("%d reaped, %v", reaped, err)
			}
			put(w, w.s, "c")
			var era, seq int
			w.scan(`SELECT era FROM postern.queue`, &era)
			put(w, warm, "d")
			if w.scan(`SELECT tail_seq FROM postern.queue`, &seq); era != 0 || seq != 4 {
				t.Errorf("in era %d after the reap, and the last of four is at %d", era, seq)
			}
			if got := fmt.Sprint(w.work(n)); got != "[c d]" {
				t.Errorf("worked off %s", got)
			}
			holdsTrue(t, w.ctx, w.s.Pool())
		})
	}
}

func TestABatchMayNeedMoreNewLanesThanATransactionIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", func(d *outbox.Dispatcher) { d.Exclusive = "field:/uid" })
	var subs []*pg.Submission
	for i := range 30 {
		subs = append(subs, w.sub(fmt.Sprint("q", i), "T", fmt.Sprint("u", i)))
	}
	out, err := w.s.Ingest(w.ctx, subs, false)
	w.must(err)
	for _, a := range out {
		w.must(a.Err)
	}
	if got := len(w.work(w.node("n"))); got != 30 {
		t.Errorf("worked off %d of 30", got)
	}
	holdsTrue(t, w.ctx, w.s.Pool())
}

func TestAnAtomicBatchThatIsRefusedNamesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	known := w.post("q", "T", "known")[0]
	out, err := w.s.Ingest(w.ctx, []*pg.Submission{w.sub("q", "T", "a"), w.sub("q", "T", "known"), w.sub("q", "no such type", "b"), w.sub("q", "T", "a")}, true)
	w.must(err)
	if !out[0].ID.IsZero() || !out[3].ID.IsZero() || out[2].Err == nil || out[1].ID != known || !out[1].Replay {
		t.Errorf("%+v", out)
	}
	var n int
	if w.scan(`SELECT count(*) FROM postern.task`, &n); n != 1 {
		t.Errorf("%d tasks", n)
	}
}

// TestAQueueThatDropsItsOldestTakesWhateverComes: posts of one queue are gathered into one commit, and
// each makes room for itself.
func TestAQueueThatDropsItsOldestTakesWhateverComes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	_, err := w.s.PutQueue(w.ctx, w.by, pg.Queue{Name: "q", Priority: "Med", MaxDepth: 3, WhenFull: "drop_oldest", OnFailure: "continue"}, 0)
	w.must(err)
	ids := w.post("q", "T", "a", "b", "c", "d", "e")
	ids = append(ids, w.post("q", "T", "f", "g")...)
	holdsTrue(t, w.ctx, w.s.Pool())
	for i, id := range ids {
		want := outbox.CANCELLED
		if i >= 4 {
			want = outbox.WAITING
		}
		if id.Seq != int64(i+1) || w.state(id) != want {
			t.Errorf("%d is at %d, %s, want %s", i+1, id.Seq, w.state(id), want)
		}
	}
	n := w.node("n")
	l := w.claim(n, everything())[0] // what is in flight is not dropped
	more := w.post("q", "T", "h", "i", "j")
	if w.state(l.ID()) != outbox.DISPATCHING || w.state(more[2]) != outbox.WAITING || w.state(more[0]) != outbox.CANCELLED {
		t.Error(w.state(l.ID()), w.state(more[0]), w.state(more[2]))
	}
	holdsTrue(t, w.ctx, w.s.Pool())
	// a batch that wants all or nothing is refused, since what would be dropped lies in it
	var subs []*pg.Submission
	for i := range 4 {
		subs = append(subs, w.sub("q", "T", fmt.Sprint("atomic", i)))
	}
	out, err := w.s.Ingest(w.ctx, subs, true)
	if err != nil || out[3].Err == nil {
		t.Errorf("%+v %v", out, err)
	}
	holdsTrue(t, w.ctx, w.s.Pool())
}
