package pgtest

import (
	"log/slog"
	"testing"

	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
)

// Store opens a store on the database, with a pool of its own as a process has it, of at most max connections; it is
// closed at the end of the test.
func (db *DB) Store(t testing.TB, max int32) *stores.Store {
	t.Helper()
	pool, err := pg.Connect(t.Context(), db.URL, max)
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
