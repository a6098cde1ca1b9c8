package pg_test

import (
	"log/slog"
	"sync"
	"testing"

	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

func TestProcessesThatStartTogetherMakeTheDaysOnce(t *testing.T) {
	db := pgtest.New(t)
	dropDays(t, db)
	var wg sync.WaitGroup
	for range 6 {
		pool, err := pg.Connect(t.Context(), db.URL, 2)
		pgworld.OK(t, err)
		t.Cleanup(pool.Close)
		wg.Go(func() {
			if _, err := stores.Open(t.Context(), pool, slog.New(slog.DiscardHandler)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var covered bool
	pgworld.OK(t, db.Pool.QueryRow(t.Context(), `SELECT count(*) = 5 * 4 FROM generate_series(-1, 3) d
		JOIN postern.spans s ON (clock_timestamp() AT TIME ZONE 'UTC')::date + d
			BETWEEN s.first AND s.last`).Scan(&covered))
	if !covered {
		t.Error("the days from yesterday to three days ahead do not lie in one partition of each table")
	}
}
