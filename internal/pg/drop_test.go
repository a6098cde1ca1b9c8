package pg_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// prices is a queue that drops its oldest, with room for so many.
func (w *world) prices(most int) {
	w.T.Helper()
	w.Dispatcher("T", nil)
	_, err := w.S.PutQueue(w.Ctx, w.By, pg.Queue{Name: "q", Priority: "Med", MaxDepth: most, WhenFull: "drop_oldest",
		OnFailure: "continue"}, 0)
	w.Must(err)
}

// numbered posts n transactions in one call.
func (w *world) numbered(name string, n int) []outbox.ID {
	w.T.Helper()
	var uids []string
	for i := range n {
		uids = append(uids, fmt.Sprint(name, i))
	}
	return w.Post("q", "T", uids...)
}

// However many were dropped or cancelled behind a transaction in flight, what comes next, what is dropped next and how
// many wait is found without a look at each. Posts that make room for themselves share a commit.
func TestManyDropsBehindAHeadInFlightAreNotReadAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.prices(10)
	w.Post("q", "T", "head")
	l := w.Claim(w.Node("n"), pgworld.Everything())[0]
	w.ended(l.ID().Queue, 5000) // by a version that did not keep past_seq
	w.numbered("first ", 10)
	last := w.numbered("round ", 40)[39]
	var commits, waiting int
	w.Scan(`SELECT count(DISTINCT xmin::text) FROM postern.task WHERE uid LIKE 'round %'`, &commits)
	w.Scan(`SELECT count(*) FROM postern.transactions WHERE state = 'WAITING'`, &waiting)
	if commits != 1 || waiting != 9 || w.State(last) != outbox.WAITING {
		t.Errorf("%d commits; %d wait, the last is %s", commits, waiting, w.State(last))
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	for sql, args := range w.looks() {
		plan := w.Plan(true, sql, args...)
		var read int
		for _, m := range regexp.MustCompile(`actual rows=([0-9.]+) loops=(\d+)`).FindAllStringSubmatch(plan, -1) {
			rows, err := strconv.ParseFloat(m[1], 64)
			w.Must(err)
			loops, err := strconv.Atoi(m[2])
			w.Must(err)
			if !strings.Contains(sql, "postern.mark m") || rows < 5000 { // the marks that are passed are counted once
				read += int(rows * float64(loops))
			}
		}
		if read > 500 {
			t.Errorf("%d rows are read:\n%s\n%s", read, sql, plan)
		}
	}
	next := w.Settle(w.Answer(l, pgworld.Done()))[0].Next
	if next == nil || next.ID().Seq != last.Seq-8 {
		t.Errorf("what comes next is %+v", next)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

// looks are the looks at the queue of w with what they are given, as a post and the end of its head have them.
func (w *world) looks() map[string][]any {
	w.T.Helper()
	rows, err := w.S.Pool().Query(w.Ctx, `SELECT `+pg.QueueSelect+` FROM postern.queue q`)
	w.Must(err)
	found := map[int64]*pg.QueueRow{}
	w.Must(pg.ScanQueues(rows, found))
	for _, q := range found {
		return pg.LooksAt(q)
	}
	return nil
}

// ended puts n transactions that were dropped behind the head of a queue.
func (w *world) ended(queue int64, n int) {
	w.T.Helper()
	for _, sql := range []string{
		`INSERT INTO postern.task (queue_id, seq, day, context_id, type, data, created_at)
			SELECT t.queue_id, t.seq + g, t.day, t.context_id, t.type, '{}', t.created_at
			FROM postern.task t, generate_series(1, $2::int) g WHERE t.queue_id = $1`,
		`INSERT INTO postern.outcome (queue_id, seq, day, context_id, was, state, error_code)
			SELECT t.queue_id, t.seq, t.day, t.context_id, 'WAITING', 'CANCELLED', 'dropped_oldest'
			FROM postern.task t WHERE t.queue_id = $1 AND t.seq BETWEEN 2 AND $2::int + 1`,
		`INSERT INTO postern.mark (queue_id, seq, kind)
			SELECT $1, g + 1, 'cancelled' FROM generate_series(1, $2::int) g`,
		`UPDATE postern.queue SET tail_seq = tail_seq + $2::int, marks = marks + $2::int WHERE queue_id = $1`,
	} {
		_, err := w.S.Pool().Exec(w.Ctx, sql, queue, n)
		w.Must(err)
	}
	_, err := w.S.Pool().Exec(w.Ctx, `ANALYZE postern.task, postern.outcome, postern.mark`)
	w.Must(err)
}

// A transaction that was placed ahead goes on, and goes first again, while what waits in front of it is dropped.
func TestDropsInFrontOfWhatWasPlacedAhead(t *testing.T) {
	t.Parallel()
	for _, back := range []bool{false, true} {
		w := newWorld(t)
		w.prices(4)
		ids := w.Post("q", "T", "a", "b", "c", "d")
		w.Lever(w.S.Move(w.Ctx, w.By, ids[2], pg.Place{}))
		n := w.Node("n")
		l := w.Claim(n, pgworld.Everything())[0]
		ids = append(ids, w.numbered("e", 1)...)
		pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
		ids = append(ids, w.numbered("f", 6)...)
		pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
		if back { // it waits again, goes first, and is the oldest: the next drop takes it
			w.Settle(w.Answer(l, outbox.Answer{Class: outbox.ClassBlocked, Code: "1"}))
			pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
			waited := w.State(l.ID())
			w.numbered("g", 2)
			if now := w.State(l.ID()); waited != outbox.WAITING || now != outbox.CANCELLED {
				t.Errorf("it is %s, and then %s", waited, now)
			}
		} else if next := w.Settle(w.Answer(l, pgworld.Done()))[0].Next; l.ID() != ids[2] || next == nil ||
			next.ID() != ids[len(ids)-3] {
			t.Errorf("%v went first, and then %+v", l.ID(), next)
		}
		pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	}
}

// What depends on the oldest does not drop it, and it is not dropped by what is posted beside that. By a later post it
// is, and its dependent fails.
func TestWhatIsDroppedHasNoDependentInTheSameCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.prices(2)
	w.Post("q", "T", "head")
	w.Claim(w.Node("n"), pgworld.Everything())
	w.Post("q", "T", "x")
	out := w.postAll(dependent("q", "own", "x"), dependent("other", "d", "x"), w.Sub("q", "T", "beside"))
	if out[1].Err != nil || fault.KindOf(out[0].Err) != fault.Retry || out[2].Err != nil {
		t.Fatal(out)
	}
	_, err := w.S.Ripple(w.Ctx)
	w.Must(err)
	if got := w.states("x", "d", "beside"); got != "x CANCELLED, d FAILED, beside WAITING" {
		t.Error(got)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

// A staged row that depends on the oldest of its full queue stays staged until that goes out.
func TestWhatIsStagedDropsNothingThatItDependsOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.prices(2)
	w.Post("q", "T", "head")
	n := w.Node("n")
	head := w.Claim(n, pgworld.Everything())[0]
	w.Post("q", "T", "a")
	w.Must(w.submitAfter(w.app(1), "q", "b", "a"))
	if out := w.drainAll(w.S); out != (pg.Drained{}) {
		t.Fatalf("drained %+v", out)
	}
	next := w.Settle(w.Answer(head, pgworld.Done()))[0].Next
	if out := w.drainAll(w.S); out.Rows != 1 || out.Refused != 0 {
		t.Fatalf("drained %+v", out)
	}
	for next != nil {
		next = w.Settle(w.Answer(next, pgworld.Done()))[0].Next
	}
	w.work(n)
	if got := w.states("a", "b"); got != "a DONE, b DONE" {
		t.Error(got)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

// What fails as it is posted takes no room.
func TestNothingIsDroppedForWhatFailsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.prices(4)
	w.Post("q", "T", "head", "a")
	l := w.Claim(w.Node("n"), pgworld.Everything())[0]
	x := w.Post("other", "T", "x")[0]
	_, err := w.S.Cancel(w.Ctx, w.By, x)
	w.Must(err)
	w.postAll(dependent("q", "1", "x"), dependent("q", "2", "x"), dependent("q", "3", "x"), w.Sub("q", "T", "b"),
		dependent("q", "4", "x"), w.Sub("q", "T", "c"))
	if got := w.states("a", "1", "b", "4", "c"); got != "a WAITING, 1 FAILED, b WAITING, 4 FAILED, c WAITING" {
		t.Error(got, l.ID())
	}
	w.Post("q", "T", "d")
	if got := w.states("a", "b", "c", "d"); got != "a CANCELLED, b WAITING, c WAITING, d WAITING" {
		t.Error(got)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}
