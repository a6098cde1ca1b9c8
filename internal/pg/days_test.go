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
	_, err := db.Pool.Exec(t.Context(), `DO $$ DECLARE t text; BEGIN
		FOR t IN SELECT c.oid::regclass::text FROM pg_class c WHERE c.relispartition AND c.relkind = 'r' LOOP EXECUTE 'DROP TABLE ' || t; END LOOP; END $$`)
	pgworld.OK(t, err)
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
	var n int
	pgworld.OK(t, db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_inherits WHERE inhparent = 'postern.task'::regclass`).Scan(&n))
	if n != 5 {
		t.Errorf("%d days of task, want yesterday to three days ahead", n)
	}
}
