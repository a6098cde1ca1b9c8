package pg_test

import (
	"context"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// A queue is worked on over midnight: the end of a transaction of the day before puts the next one, of the new day, in
// flight, and it is read as in flight.
func TestATransactionOfANewDayIsReadOverMidnight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.At(w.Now.Truncate(24 * time.Hour).Add(24*time.Hour - time.Second))
	first := w.Post("q", "T", "a")[0]
	w.Later(2 * time.Second)
	later := w.Post("q", "T", "b", "c")
	if first.Day == later[0].Day {
		t.Fatal("both are of one day")
	}
	l := w.Claim(w.Node("n"), pgworld.Everything())[0]
	l = w.Settle(w.Answer(l, pgworld.Done()))[0].Next
	if l == nil || l.ID() != later[0] {
		t.Fatalf("%v goes out", l)
	}
	for id, want := range map[outbox.ID]outbox.State{first: outbox.DONE,
		later[0]: outbox.DISPATCHING, later[1]: outbox.WAITING} {
		if got := w.State(id); got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
	found, err := w.S.Transactions(w.Ctx, w.ID, later)
	w.Must(err)
	if len(found) != 2 {
		t.Errorf("%d of 2", len(found))
	}
	w.Settle(w.Answer(l, pgworld.Done()))
	if got := w.State(later[0]); got != outbox.DONE {
		t.Errorf("%s is %s", later[0], got)
	}
	if n, differ, err := pgworld.OfTheirDays(w.Ctx, w.S.Pool()); err != nil || len(differ) > 0 || n < 2 {
		t.Errorf("%d are read from their days: %v %v", n, differ, err)
	}
}

// A made-up id of a day that has no partitions yet names no transaction.
func TestAnIDOfADayThatIsNotThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Later(300 * 24 * time.Hour)
	id := outbox.ID{Queue: 1, Seq: 1, Day: outbox.DayOf(w.Now), Salt: 1}
	if _, err := w.S.Transaction(w.Ctx, w.ID, id); fault.KindOf(err) != fault.NotFound {
		t.Error(err)
	}
	if open, err := w.S.Open(w.Ctx, w.ID, id); err != nil || open {
		t.Error(open, err)
	}
	if ended, elsewhere, err := w.S.Ended(w.Ctx, []outbox.ID{id}); err != nil || len(ended)+len(elsewhere) > 0 {
		t.Error(ended, elsewhere, err)
	}
}

// Statements of today do not meet those who make or drop other days: neither by a lock, nor by plans that are made
// anew.
func TestOtherDaysAreNoBusinessOfToday(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.S.SetNow(nil)
	id := w.Post("q", "T", "a")[0]
	n := w.Node("n")
	l := w.Claim(n, pgworld.Everything())
	all := w.Begin(w.Second(1))
	_, err := all.Exec(w.Ctx, `LOCK TABLE ONLY postern.task, ONLY postern.outcome, ONLY postern.attempt, ONLY postern.delivery IN ACCESS EXCLUSIVE MODE`)
	w.Must(err)
	ctx, cancel := context.WithTimeout(w.Ctx, time.Minute)
	defer cancel()
	if x, err := w.S.Transaction(ctx, w.ID, id); err != nil || x.State != outbox.DISPATCHING {
		t.Error(x, err)
	}
	if open, err := w.S.Open(ctx, w.ID, id); err != nil || !open {
		t.Error(open, err)
	}
	if _, _, err := w.S.Ended(ctx, []outbox.ID{id}); err != nil {
		t.Error(err)
	}
	w.Must(all.Rollback(w.Ctx))
	w.settleAll(l)
	if n, differ, err := pgworld.OfTheirDays(w.Ctx, w.S.Pool()); err != nil || len(differ) > 0 || n != 1 {
		t.Errorf("%d are read from their days: %v %v", n, differ, err)
	}
}
