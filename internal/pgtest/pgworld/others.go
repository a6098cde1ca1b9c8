package pgworld

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pg/verify"
)

// Other is a second process over the same database: a store with its own caches and one connection.
type Other struct {
	S   *stores.Store
	PID uint32
}

// Hold makes the next n-th commit of s wait until finish is called with what becomes of it; held is closed when
// it does.
func Hold(s *stores.Store, n int) (held <-chan struct{}, finish func(error)) {
	h, end, count := make(chan struct{}), make(chan error, 1), 0
	s.HoldCommits(func(context.Context, uint32) error {
		if count++; count != n {
			return nil
		}
		close(h)
		return <-end
	})
	return h, func(err error) { s.HoldCommits(nil); end <- err }
}

var ErrRolledBack = errors.New("rolled back by the test")

// HoldsTrue fails the test where an invariant of the database does not, or a transaction looks different from its day.
func HoldsTrue(t *testing.T, ctx context.Context, pool *pgxpool.Pool) {
	t.Helper()
	found, err := verify.Violations(ctx, pool)
	OK(t, err)
	for _, f := range found {
		t.Error(f)
	}
	_, differ, err := OfTheirDays(ctx, pool)
	OK(t, err)
	for _, d := range differ {
		t.Error(d)
	}
}

// ofSpan are the transactions of one context whose days lie in one span.
type ofSpan struct {
	Context int32
	First   outbox.Day
	Last    outbox.Day
	Queues  []int64
	Seqs    []int64
	Days    []time.Time
	Before  []bool // its queue began to be worked on before the span of its day
}

func bySpan(ctx context.Context, tx pgx.Tx) ([]ofSpan, error) {
	rows, _ := tx.Query(ctx, `SELECT t.context_id, s.first - '1970-01-01', s.last - '1970-01-01',
		array_agg(t.queue_id), array_agg(t.seq), array_agg(t.day),
			array_agg(coalesce(q.head_day < s.first, false))
		FROM postern.task t LEFT JOIN postern.queue q USING (queue_id)
		JOIN postern.spans s ON s.relation = 'task' AND t.day BETWEEN s.first AND s.last
		GROUP BY t.context_id, s.first, s.last`)
	return pgx.CollectRows(rows, pgx.RowToStructByPos[ofSpan])
}

// OfTheirDays reads every transaction from its day, and says how many it found there. differ tells which of them read
// otherwise over all days, or are left out without a reason.
func OfTheirDays(ctx context.Context, pool *pgxpool.Pool) (n int, differ []string, err error) {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return 0, nil, err
	}
	defer tx.Rollback(ctx)
	// these statements are long to plan, and tests ask them thousands of times
	if _, err := tx.Exec(ctx, `SET LOCAL plan_cache_mode = force_generic_plan`); err != nil {
		return 0, nil, err
	}
	groups, err := bySpan(ctx, tx)
	if err != nil {
		return 0, nil, err
	}
	type place struct{ queue, seq any }
	read := func(sql string, g ofSpan) (map[place]string, error) {
		rows, _ := tx.Query(ctx, sql, g.Context, g.Queues, g.Seqs, g.Days)
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
		by, err := read(pg.OfSpan(pg.TransactionsSQL, db.Span{First: g.First, Last: g.Last}), g)
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
			if row, there := by[p]; row != of[p] && (there || !g.Before[i]) {
				differ = append(differ, fmt.Sprintf("read from its day: %q, from all: %q", row, of[p]))
			}
		}
	}
	return n, differ, nil
}

func (w *World) Other() *Other {
	w.T.Helper()
	pool := w.Second(1)
	s, err := stores.Open(w.Ctx, pool, slog.New(slog.DiscardHandler))
	w.Must(err)
	s.SetNow(&w.Now)
	o := &Other{S: s}
	w.Must(pool.QueryRow(w.Ctx, `SELECT pg_backend_pid()`).Scan(&o.PID))
	return o
}

// AwaitBlocked returns as soon as the session of pid waits for a lock of another.
func (w *World) AwaitBlocked(pid uint32) {
	w.T.Helper()
	for blocked := false; !blocked; {
		w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT cardinality(pg_blocking_pids($1::int)) > 0`, pid).Scan(&blocked))
	}
}

// Beside runs first and holds its first commit, runs second meanwhile, and says whether that had to wait for it.
func (w *World) Beside(first func() error, second func() string) (said string, waited bool) {
	w.T.Helper()
	done := make(chan string, 1)
	held, ended := false, false
	w.S.HoldCommits(func(_ context.Context, pid uint32) error {
		if held { // a later commit of first, or one of second: there is one second
			return nil
		}
		held = true
		go func() { done <- second() }()
		for end := time.Now().Add(time.Minute); !waited && !ended; {
			select {
			case said = <-done:
				ended = true
			default:
				if time.Now().After(end) {
					return errors.New("the second neither ended nor waited for the first within a minute")
				}
				w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity
					WHERE datname = current_database() AND $1::int = ANY (pg_blocking_pids(pid)))`, pid).Scan(&waited))
			}
		}
		return nil
	})
	w.Must(first())
	if !held {
		w.T.Fatal("the first committed nothing, so that nothing ran beside it")
	}
	if !ended {
		said = <-done
	}
	w.S.HoldCommits(nil) // once second ended: it may commit through the same store
	return said, waited
}

// Another opens a second store on the database, which decides by the same clock.
func (w *World) Another(conns int32) *stores.Store {
	w.T.Helper()
	s, err := stores.Open(w.Ctx, w.Second(conns), Quiet)
	w.Must(err)
	s.SetNow(&w.Now)
	return s
}
