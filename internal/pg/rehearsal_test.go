package pg_test

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg"
)

// A connection of a process that posts and works has the plans of all that an ordinary day takes, before it is used: each of them, and
// none is met later more than a few times.
func TestAConnectionHasThePlansOfAnOrdinaryDay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	pool, err := pg.Connect(w.ctx, w.s.Pool().Config().ConnString(), 1, pg.Posts, pg.Works)
	w.must(err)
	t.Cleanup(pool.Close)
	met := func(which string, times int) []string {
		rows, err := pool.Query(w.ctx, `SELECT statement FROM pg_prepared_statements WHERE name `+which+` AND generic_plans + custom_plans `+fmt.Sprintf(">= %d", times)+` ORDER BY 1`, pgx.QueryExecModeSimpleProtocol)
		w.must(err)
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		w.must(err)
		return list
	}
	const rehearsed = `LIKE 'stmt\_%' AND statement NOT IN ('BEGIN', 'COMMIT')`
	prepared, planned := met(rehearsed, 0), met(rehearsed, 1)
	if len(prepared) < 20 || len(planned) != len(prepared) {
		t.Fatalf("%d of %d statements are planned, of about thirty", len(planned), len(prepared))
	}
	w.s, err = pg.Open(w.ctx, pool, slog.New(slog.DiscardHandler))
	w.must(err)
	n := w.node("n")
	const days = 6
	for i := range days {
		w.post("one", "T", fmt.Sprint("a", i))
		w.settleAll(w.claim(n, everything()))
		w.post("two", "T", fmt.Sprint("b", i), fmt.Sprint("c", i))
		w.postAll(w.sub("one", "T", ""), w.sub("two", "T", ""), w.sub("three", "T", ""))
		for more := w.claim(n, everything()); len(more) > 0; more = w.claim(n, everything()) {
			w.settleAll(more)
		}
		c := w.takenBy(n, 10)
		w.post("one", "T", fmt.Sprint("d", i))
		w.postAll(w.sub("two", "T", ""), w.sub("three", "T", ""))
		w.settleAll(c.flown)
		w.s.Take(nil)
	}
	for _, sql := range met("NOT LIKE 'stmt\\_%'", days) {
		t.Errorf("is planned by whoever meets it first: %s", sql)
	}
}

// settleAll ends what is in hand, and what comes behind it under the same lease, until there is nothing.
func (w *world) settleAll(leases []*pg.Lease) {
	w.t.Helper()
	for len(leases) > 0 {
		var answers []*pg.Answer
		for _, l := range leases {
			answers = append(answers, w.answer(l, done()))
		}
		leases = nil
		for _, s := range w.settle(answers...) {
			w.must(s.Err)
			if s.Next != nil {
				leases = append(leases, s.Next)
			}
		}
	}
}
