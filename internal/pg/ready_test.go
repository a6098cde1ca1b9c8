package pg_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/chaos/proxy"
	"github.com/postern-dev/postern/internal/pg"
	pgdb "github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest"
)

func TestADatabaseThatCannotBeWorkedWithIsSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wrong := func(s *stores.Store) (list []string) {
		for _, r := range s.Ready(w.Ctx) {
			if r.Detail != "" {
				list = append(list, r.Name+": "+r.Detail)
			}
		}
		return list
	}
	if list := wrong(w.S); len(list) > 0 || len(w.S.Ready(w.Ctx)) != 4 {
		t.Errorf("a database that is well: %v", list)
	}
	for stmt, want := range map[string]string{
		`INSERT INTO postern.goose_db_version (version_id, is_applied) VALUES (99999, true)`: "", // a newer program is being rolled out
		`DELETE FROM postern.goose_db_version WHERE version_id = 21`:                         "migrations: the database is",
		`ALTER DATABASE CURRENT SET default_transaction_read_only = on`:                      "database: the database takes no writes",
	} {
		t.Run(stmt, func(t *testing.T) {
			w := newWorld(t)
			_, err := w.S.Pool().Exec(w.Ctx, strings.Replace(stmt, "CURRENT", `"`+w.S.Pool().Config().ConnConfig.Database+`"`, 1))
			w.Must(err)
			w.S.Pool().Reset() // settings of a database are those of new connections
			if list := wrong(w.S); (len(list) > 0) != (want != "") || want != "" && !strings.HasPrefix(list[0], want) {
				t.Errorf("%v, want %s", list, want)
			}
		})
	}
	w.S.Pool().Close()
	if list := wrong(w.S); len(list) != 1 || list[0] != "database: the database does not answer" {
		t.Errorf("%v", list)
	}
}

// A question whether a slow database is ready costs no connection, and is answered in time.
func TestASlowDatabaseIsNotReadyAndLosesNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	p := proxy.New(t, db.URL)
	pool, err := pg.Connect(t.Context(), p.URL(db.URL), 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s, err := stores.Open(t.Context(), pool, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	pgdb.Fill(t.Context(), pool)
	if list := s.Ready(t.Context()); len(list) != 4 {
		t.Errorf("%v", list)
	}
	s.AnsweredAgo(time.Hour)
	p.Delay(3 * time.Second)
	for range 5 {
		if list := s.Ready(t.Context()); len(list) == 1 && list[0].Detail == "" {
			t.Errorf("%v", list)
		}
	}
	p.Delay(0)
	if n := pool.Stat().NewConnsCount(); n != 3 {
		t.Errorf("%d connections were opened, want the first 3", n)
	}
}

// A process whose connections are all at work takes its database for as ready as it was at its last answer, for five
// seconds.
func TestABusyProcessIsReady(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.Other()
	ready := o.S.Ready(w.Ctx)
	tx := w.Begin(o.S.Pool()) // its one connection
	o.S.AnsweredAgo(-time.Hour)
	if busy := o.S.Ready(w.Ctx); len(ready) != 4 || !slices.Equal(busy, ready) {
		t.Errorf("%v, and busy %v", ready, busy)
	}
	o.S.AnsweredAgo(6 * time.Second)
	if gone := o.S.Ready(w.Ctx); len(gone) != 1 || gone[0].Detail == "" {
		t.Errorf("%v", gone)
	}
	w.Must(tx.Rollback(w.Ctx))
}
