package pgworld

import (
	"context"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/deliveries"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest"
)

// World is a store over a database of its own, with a clock that only the test moves.
type World struct {
	T   *testing.T
	S   *stores.Store
	Now time.Time
	Ctx context.Context
	By  db.By
	ID  int32
	Due []*deliveries.Delivery // what take handed out last
}

func New(t *testing.T) *World {
	t.Helper()
	w := Over(t, pgtest.New(t).Store(t, 8))
	w.At(time.Now().UTC().Truncate(time.Microsecond))
	return w
}

// Over is a world over a store with the clock of its database.
func Over(t *testing.T, s *stores.Store) *World {
	w := &World{T: t, S: s, Ctx: t.Context(), ID: s.Context("default").ID}
	w.By = db.By{Context: w.ID, Actor: "test", Via: "test", Reason: "because"}
	return w
}

var Quiet = slog.New(slog.DiscardHandler)

func OK(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%+v", err)
	}
}

func (w *World) At(t time.Time) { w.Now = t; w.S.SetNow(&w.Now) }

func (w *World) Later(d time.Duration) { w.At(w.Now.Add(d)) }

func (w *World) Must(err error) { w.T.Helper(); OK(w.T, err) }

// Exec runs a statement as the owner.
func (w *World) Exec(sql string, args ...any) {
	w.T.Helper()
	_, err := w.S.Pool().Exec(w.Ctx, sql, args...)
	w.Must(err)
}

// Scan reads one row.
func (w *World) Scan(sql string, dest ...any) {
	w.T.Helper()
	w.Must(w.S.Pool().QueryRow(w.Ctx, sql).Scan(dest...))
}

func (w *World) Same(got []string, want ...string) {
	w.T.Helper()
	if !slices.Equal(got, want) {
		w.T.Errorf("got  %s\nwant %s", strings.Join(got, ", "), strings.Join(want, ", "))
	}
}

// Lines reads a query of one text column.
func (w *World) Lines(sql string, args ...any) (list []string) {
	w.T.Helper()
	rows, err := w.S.Pool().Query(w.Ctx, sql, args...)
	w.Must(err)
	list, err = pgx.CollectRows(rows, pgx.RowTo[string])
	w.Must(err)
	return list
}

// Begin begins a transaction that the server does not end while its process gets no processor.
func (w *World) Begin(db *pgxpool.Pool, o ...pgx.TxOptions) pgx.Tx {
	w.T.Helper()
	tx, err := db.BeginTx(w.Ctx, append(o, pgx.TxOptions{})[0])
	w.Must(err)
	_, err = tx.Exec(w.Ctx, `SET LOCAL idle_in_transaction_session_timeout = '1min'`)
	w.Must(err)
	w.T.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// Second opens another pool on the database of the world.
func (w *World) Second(conns int32) *pgxpool.Pool {
	w.T.Helper()
	pool, err := pg.Connect(w.Ctx, w.S.Pool().Config().ConnString(), conns)
	w.Must(err)
	w.T.Cleanup(pool.Close)
	return pool
}

// UntilBlocked waits until n sessions wait for a lock.
func (w *World) UntilBlocked(n int) {
	for blocked := 0; blocked < n && w.Ctx.Err() == nil; {
		w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0`).Scan(&blocked))
	}
}

// Plan explains a statement as the pool runs it; with ran it is executed, and the plan says what was read.
func (w *World) Plan(ran bool, sql string, args ...any) string {
	w.T.Helper()
	how := "EXPLAIN (COSTS OFF) "
	if ran {
		how = "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) "
	}
	rows, err := w.S.Pool().Query(w.Ctx, how+sql, args...)
	w.Must(err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	w.Must(err)
	return strings.Join(lines, "\n")
}

type QueryRower interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// ByKeys checks the plans of statements. A plan that was made of empty tables must read by the keys that it is given,
// since a line or a channel may have many rows later.
func (w *World) ByKeys(statements map[string][]any) {
	w.T.Helper()
	for sql, args := range statements {
		plan := w.Plan(false, sql, args...)
		if strings.Contains(plan, "Join Filter") || strings.Contains(plan, "Seq Scan") || !byKey.MatchString(plan) {
			w.T.Errorf("%s\nreads more than its keys:\n%s", sql, plan)
		}
	}
}

// byKey is the condition of a plan that reads what it is given the keys of.
var byKey = regexp.MustCompile(`((queue|message)_id|number) = n\.`)
