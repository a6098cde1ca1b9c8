package pg_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// practised gives w a store on a pool of one connection of all parts.
func (w *world) practised() *pgxpool.Pool {
	w.T.Helper()
	pool, err := pg.Connect(w.Ctx, w.S.Pool().Config().ConnString(), 1, pg.Posts, pg.Works)
	w.Must(err)
	w.T.Cleanup(pool.Close)
	db.Fill(w.Ctx, pool)
	w.S, err = stores.Open(w.Ctx, pool, slog.New(slog.DiscardHandler))
	w.Must(err)
	return pool
}

// settleAll ends what is in hand, and what comes behind it under the same lease, until there is nothing.
func (w *world) settleAll(leases []*pg.Lease) {
	w.T.Helper()
	for len(leases) > 0 {
		var answers []*pg.Answer
		for _, l := range leases {
			answers = append(answers, w.Answer(l, pgworld.Done()))
		}
		leases = nil
		for _, s := range w.Settle(answers...) {
			w.Must(s.Err)
			if s.Next != nil {
				leases = append(leases, s.Next)
			}
		}
	}
}

// A connection of a process that posts and works has the plans of all that an ordinary day takes before it is used:
// every one of them, none that such a day does not use, and none is met later that comes each day.
func TestAConnectionHasThePlansOfAnOrdinaryDay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	other := w.S
	other.SetNow(nil)
	pool := w.practised()
	met := func(which string) []string {
		rows, err := pool.Query(w.Ctx, `SELECT statement FROM pg_prepared_statements WHERE statement NOT IN ('BEGIN', 'COMMIT') AND `+which, pgx.QueryExecModeSimpleProtocol)
		w.Must(err)
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		w.Must(err)
		return list
	}
	const rehearsed, times = `name LIKE 'stmt\_%'`, ` AND generic_plans + custom_plans `
	prepared, planned := met(rehearsed), met(rehearsed+times+"> 0")
	if len(prepared) < 20 || len(planned) != len(prepared) {
		t.Fatalf("%d of %d statements are planned, of some forty", len(planned), len(prepared))
	}
	for sql := range w.S.Store.Reads() {
		if !slices.Contains(met("true"+times+"> 0"), sql) {
			t.Errorf("is not planned: %s", sql)
		}
	}
	n := w.Node("n")
	const days = 6
	for i := range days {
		uid := func(s string) string { return fmt.Sprint(s, i) }
		w.Post("one", "T", uid("a"))
		w.settleAll(w.Claim(n, pgworld.Everything()))
		w.Post("two", "T", uid("b"), uid("c"))
		w.postAll(w.Sub("one", "T", ""), w.Sub("two", "T", ""), w.Sub("three", "T", ""))
		w.postAll(w.Sub("one", "T", uid("d")), w.Sub("two", "T", uid("e")))
		w.postAll(w.traced("one", ""), w.traced("two", ""))
		w.settleAll(w.Claim(n, pgworld.Everything()))
		w.postAll(w.traced("one", ""))
		w.postAll(w.traced("one", uid("f")))
		w.postAll(w.traced("two", uid("g")), w.traced("three", uid("h")))
		w.postAll(w.Sub("four", "T", ""))
		w.settleAll(w.Claim(n, pgworld.Everything()))
		_, err := other.Ingest(w.Ctx, []*pg.Submission{w.Sub(uid("new "), "T", "")}, false)
		w.Must(err)
		w.settleAll(w.Claim(n, pgworld.Everything()))
		c := w.takenBy(n, 10)
		w.Post("one", "T", uid("i"))
		w.postAll(w.Sub("two", "T", ""), w.Sub("three", "T", ""))
		w.settleAll(c.started)
		w.S.Take(nil)
		var deep []string // more than is read ahead
		for k := range 20 {
			deep = append(deep, uid(fmt.Sprint("deep ", k, " ")))
		}
		w.Post("deep", "T", deep...)
		w.settleAll(w.Claim(n, pgworld.Everything()))
		id := w.Post("one", "T", uid("j"))[0]
		_, err = w.S.Open(w.Ctx, w.ID, id)
		w.Must(err)
		_, _, err = w.S.Ended(w.Ctx, []outbox.ID{id})
		w.Must(err)
		_, err = w.S.Transaction(w.Ctx, w.ID, id)
		w.Must(err)
		w.settleAll(w.Claim(n, pgworld.Everything()))
	}
	for _, sql := range met("NOT " + rehearsed + times + fmt.Sprint(">= ", days)) {
		if _, known := w.S.Store.Reads()[sql]; known {
			continue
		}
		t.Errorf("is planned by whoever meets it first: %s", sql)
	}
	for _, sql := range met(rehearsed + times + "< 2") {
		t.Errorf("is planned for nothing: %s", sql)
	}
	sum := 0
	for _, p := range []pg.Part{pg.Posts, pg.Works} {
		list, err := w.S.Rehearse(p)
		w.Must(err)
		sum += len(list)
	}
	if all, err := w.S.Rehearse(pg.Posts | pg.Works); err != nil || len(all) > sum || len(all) < sum-5 {
		t.Errorf("both parts rehearse %d statements (%v), each by itself %d", len(all), err, sum)
	}
}

func (w *world) traced(queue, uid string) *pg.Submission {
	s := w.Sub(queue, "T", uid)
	s.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	return s
}

// A statement that a connection has prepared may become invalid: a newer program's migration changes a type, or a
// pooler drops the statement. No caller is told of a failure, and the connection is replaced.
func TestStatementsThatAreNoLongerPreparedFailNobody(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]string{
		"dropped":        "DEALLOCATE ALL",
		"another result": "ALTER TABLE postern.queue ALTER COLUMN era TYPE bigint",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Dispatcher("T", nil)
			pool := w.practised()
			n := w.Node("n")
			w.Post("q", "T", "a")
			for i, act := range []func(){
				func() { w.Post("q", "T", "b") },
				func() { w.settleAll(w.Claim(n, pgworld.Everything())) },
				func() {
					id := w.Post("q", "T", "c")[0]
					for try := range 2 { // pgx finds it out by the first
						if _, err := w.S.Transaction(w.Ctx, w.ID, id); err != nil && try > 0 {
							t.Errorf("a read fails again: %v", err)
						}
					}
				},
			} {
				if spoil == "DEALLOCATE ALL" || i == 0 {
					_, err := pool.Exec(w.Ctx, spoil, pgx.QueryExecModeSimpleProtocol)
					w.Must(err)
				}
				act()
			}
			pgworld.HoldsTrue(t, w.Ctx, pool)
		})
	}
}

// All connections of a pool are open before its process begins, and each has rehearsed its statements. A database that
// does not answer holds the process up no longer than the context allows.
func TestConnectionsAreThereBeforeTheyAreUsed(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t).URL
	for _, most := range []int32{20, 3} {
		pool, err := pg.Connect(t.Context(), url, most, pg.Posts, pg.Works)
		pgworld.OK(t, err)
		defer pool.Close()
		db.Fill(t.Context(), pool)
		if s := pool.Stat(); s.IdleConns() != most || s.NewConnsCount() != int64(most) {
			t.Errorf("of %d connections %d are open and %d were opened, want all, once", most, s.IdleConns(), s.NewConnsCount())
		}
		for _, conn := range pool.AcquireAllIdle(t.Context()) {
			var planned int
			pgworld.OK(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_prepared_statements WHERE generic_plans > 0`, pgx.QueryExecModeSimpleProtocol).Scan(&planned))
			if planned < 20 {
				t.Errorf("a connection has %d plans, of some forty", planned)
			}
			conn.Release()
		}
	}

	silent, err := net.Listen("tcp", "127.0.0.1:0")
	pgworld.OK(t, err)
	defer silent.Close()
	pool, err := pg.Connect(t.Context(), "postgres://nobody@"+silent.Addr().String()+"/none?sslmode=disable", 4, pg.Works)
	pgworld.OK(t, err)
	defer pool.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	db.Fill(ctx, pool)
	if n := pool.Stat().IdleConns(); n != 0 {
		t.Errorf("%d connections to nobody", n)
	}
}

// Connections that the server has ended are all opened anew before they are needed, as soon as one was asked for.
func TestConnectionsThatEndAreOpenedAnew(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	const most = 4
	pool, err := pg.Connect(t.Context(), d.URL+"&pool_health_check_period=100ms", most, pg.Posts, pg.Works)
	pgworld.OK(t, err)
	defer pool.Close()
	db.Fill(t.Context(), pool)
	_, err = d.Pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	pgworld.OK(t, err)
	pgworld.OK(t, pool.Ping(t.Context()))
	for until := time.Now().Add(time.Minute); pool.Stat().IdleConns() < most; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d of %d connections are open again", pool.Stat().IdleConns(), most)
		}
	}
	if n := pool.Stat().NewConnsCount(); n != 2*most {
		t.Errorf("%d connections were opened, want %d twice", n, most)
	}
}

// A connection that a caller waits for is used before it has practised, and practises where it rests.
func TestAConnectionThatIsWantedPractisesLater(t *testing.T) {
	t.Parallel()
	pool, err := pg.Connect(t.Context(), pgtest.New(t).URL, 1, pg.Posts, pg.Works)
	pgworld.OK(t, err)
	defer pool.Close()
	planned := func() (n int) {
		pgworld.OK(t, pool.QueryRow(t.Context(), `SELECT count(*)::int FROM pg_prepared_statements
			WHERE name LIKE 'stmt\_%' AND generic_plans + custom_plans > 0`, pgx.QueryExecModeSimpleProtocol).Scan(&n))
		return n
	}
	db.Fill(t.Context(), pool)
	all := planned()
	pool.Reset()
	for pool.Stat().TotalConns() > 0 { // the pool opens another by itself only at its next look, a minute later
		time.Sleep(time.Millisecond)
	}
	if n := planned(); n >= all {
		t.Errorf("a connection that is wanted has planned %d of %d statements", n, all)
	}
	for end := time.Now().Add(time.Minute); planned() < all; time.Sleep(2 * time.Second) {
		if time.Now().After(end) {
			t.Fatalf("a connection that rests has planned %d of %d statements", planned(), all)
		}
	}
}

// A database without our tables, and one that says nothing, are met as they would be without anything to practise.
func TestConnectionsThatCannotPractise(t *testing.T) {
	t.Parallel()
	pool, err := pg.Connect(t.Context(), pgtest.Empty(t).URL, 2, pg.Posts)
	pgworld.OK(t, err)
	defer pool.Close()
	var one int
	if err := pool.QueryRow(t.Context(), "SELECT 1").Scan(&one); err != nil || one != 1 {
		t.Errorf("an empty database answers %d, %v", one, err)
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	pgworld.OK(t, err)
	defer l.Close()
	silent, err := pg.Connect(t.Context(), "postgres://nobody@"+l.Addr().String()+"/none?sslmode=disable", 4, pg.Posts, pg.Works)
	pgworld.OK(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := silent.Ping(ctx); err == nil {
		t.Error("nobody answered")
	}
	closed := make(chan bool)
	go func() { silent.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(30 * time.Second):
		t.Error("a pool waits for a connection that nobody answers")
	}
}
