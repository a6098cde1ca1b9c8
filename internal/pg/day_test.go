package pg_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
)

// ofTheirDays reads every transaction from its day, and says how many that gave, and which of them are not what they are for whoever asks all
// days, or are left out without a reason.
func ofTheirDays(ctx context.Context, pool *pgxpool.Pool) (n int, differ []string, err error) {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return 0, nil, err
	}
	defer tx.Rollback(ctx)
	type group struct {
		Context int32
		Day     time.Time
		Queues  []int64
		Seqs    []int64
		Days    []time.Time
		Spans   []bool // its queue began to be worked on before its day
	}
	rows, _ := tx.Query(ctx, `SELECT t.context_id, t.day, array_agg(t.queue_id), array_agg(t.seq), array_agg(t.day), array_agg(coalesce(q.head_day < t.day, false))
		FROM postern.task t LEFT JOIN postern.queue q USING (queue_id)
		WHERE to_regclass('postern.task_' || to_char(t.day, 'YYYYMMDD')) IS NOT NULL GROUP BY 1, 2`, pgx.QueryExecModeExec)
	groups, err := pgx.CollectRows(rows, pgx.RowToStructByPos[group])
	if err != nil {
		return 0, nil, err
	}
	type place struct{ queue, seq any }
	read := func(sql string, g group) (map[place]string, error) {
		rows, _ := tx.Query(ctx, sql, pgx.QueryExecModeExec, g.Context, g.Queues, g.Seqs, g.Days)
		found := map[place]string{}
		_, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (any, error) {
			v, err := row.Values()
			if err == nil {
				found[place{v[0], v[1]}] = fmt.Sprint(v)
			}
			return nil, err
		})
		return found, err
	}
	for _, g := range groups {
		by, err := read(pg.OfDay(pg.TransactionsSQL, outbox.DayOf(g.Day)), g)
		if err != nil {
			return n, differ, err
		}
		of, err := read(pg.TransactionsSQL, g)
		if err != nil {
			return n, differ, err
		}
		n += len(by)
		for i := range g.Queues {
			p := place{g.Queues[i], g.Seqs[i]}
			if row, there := by[p]; row != of[p] && (there || !g.Spans[i]) {
				differ = append(differ, fmt.Sprintf("read from its day: %q, from all: %q", row, of[p]))
			}
		}
	}
	return n, differ, nil
}

// A queue that is worked on over midnight: what is in flight, by an end of the day before, is told as such.
func TestATransactionOfANewDayIsReadOverMidnight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	w.at(w.now.Truncate(24 * time.Hour).Add(24*time.Hour - time.Second))
	first := w.post("q", "T", "a")[0]
	w.later(2 * time.Second)
	later := w.post("q", "T", "b", "c")
	if first.Day == later[0].Day {
		t.Fatal("both are of one day")
	}
	l := w.claim(w.node("n"), everything())[0]
	l = w.settle(w.answer(l, done()))[0].Next
	if l == nil || l.ID() != later[0] {
		t.Fatalf("%v goes out", l)
	}
	for id, want := range map[outbox.ID]outbox.State{first: outbox.DONE, later[0]: outbox.DISPATCHING, later[1]: outbox.WAITING} {
		if got := w.state(id); got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
	found, err := w.s.Transactions(w.ctx, w.id, later)
	w.must(err)
	if len(found) != 2 {
		t.Errorf("%d of 2", len(found))
	}
	w.settle(w.answer(l, done()))
	if got := w.state(later[0]); got != outbox.DONE {
		t.Errorf("%s is %s", later[0], got)
	}
	if n, differ, err := ofTheirDays(w.ctx, w.s.Pool()); err != nil || len(differ) > 0 || n < 2 {
		t.Errorf("%d are read from their days: %v %v", n, differ, err)
	}
}

// Who makes up an id of a day that has no partitions yet is told that there is no such transaction.
func TestAnIDOfADayThatIsNotThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.later(300 * 24 * time.Hour)
	id := outbox.ID{Queue: 1, Seq: 1, Day: outbox.DayOf(w.now), Salt: 1}
	if _, err := w.s.Transaction(w.ctx, w.id, id); fault.KindOf(err) != fault.NotFound {
		t.Error(err)
	}
	if open, err := w.s.Open(w.ctx, w.id, id); err != nil || open {
		t.Error(open, err)
	}
	if ended, elsewhere, err := w.s.Ended(w.ctx, []outbox.ID{id}); err != nil || len(ended)+len(elsewhere) > 0 {
		t.Error(ended, elsewhere, err)
	}
}

// Statements of today do not meet those who make or drop other days: neither by a lock, nor by plans that are made anew.
func TestOtherDaysAreNoBusinessOfToday(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	w.s.SetNow(nil)
	id := w.post("q", "T", "a")[0]
	n := w.node("n")
	l := w.claim(n, everything())
	all := w.begin(w.second(1))
	_, err := all.Exec(w.ctx, `LOCK TABLE ONLY postern.task, ONLY postern.outcome, ONLY postern.attempt, ONLY postern.delivery IN ACCESS EXCLUSIVE MODE`)
	w.must(err)
	ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
	defer cancel()
	if x, err := w.s.Transaction(ctx, w.id, id); err != nil || x.State != outbox.DISPATCHING {
		t.Error(x, err)
	}
	if open, err := w.s.Open(ctx, w.id, id); err != nil || !open {
		t.Error(open, err)
	}
	if _, _, err := w.s.Ended(ctx, []outbox.ID{id}); err != nil {
		t.Error(err)
	}
	w.must(all.Rollback(w.ctx))
	w.settleAll(l)
	if n, differ, err := ofTheirDays(w.ctx, w.s.Pool()); err != nil || len(differ) > 0 || n != 1 {
		t.Errorf("%d are read from their days: %v %v", n, differ, err)
	}
}
