package reads_test

import (
	"testing"

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
