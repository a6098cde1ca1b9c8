package pgtest

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
)

// Store opens a store on the database, with a pool of its own of at most max connections, which it opens when they are
// needed; it is closed at the end of the test.
func (db *DB) Store(t testing.TB, max int32) *stores.Store {
	t.Helper()
	pool, err := pg.Connect(t.Context(), withParameter(db.URL, "pool_min_conns", lazily), max)
	if err != nil {
		t.Fatalf("open a pool on %s: %v", db.Name, err)
	}
	t.Cleanup(pool.Close)
	s, err := stores.Open(t.Context(), pool, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("open a store on %s: %v", db.Name, err)
	}
	return s
}

// lazily is the number of connections that the pool of a Store keeps open.
const lazily = "1"

// URL is that of the database of a pool, for a connection outside of pools.
func URL(pool *pgxpool.Pool) string {
	url := pool.Config().ConnString()
	for _, sep := range []string{"&", "?"} {
		url = strings.TrimSuffix(url, sep+"pool_min_conns="+lazily)
	}
	return url
}
