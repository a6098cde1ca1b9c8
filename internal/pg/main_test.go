package pg_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// world is that of all tests of stores, with what the tests of this package do in it.
type world struct{ *pgworld.World }

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{pgworld.New(t)}
}

// worldOver is a world over a store with the clock of its database.
func worldOver(t *testing.T, s *stores.Store) *world { return &world{pgworld.Over(t, s)} }

// in is the same world in a subtest.
func (w *world) in(t *testing.T) *world {
	one := *w.World
	one.T = t
	return &world{&one}
}

// atNoon begins at a noon that is an hour ahead at least: no midnight of the world falls into a test that takes hours
// of it, and none of the server, by whose clock views tell what is overdue and partitions are made, falls behind it.
func (w *world) atNoon() {
	noon := w.Now.Truncate(24 * time.Hour).Add(12 * time.Hour)
	if noon.Before(w.Now.Add(time.Hour)) {
		noon = noon.Add(24 * time.Hour)
	}
	w.At(noon)
}
