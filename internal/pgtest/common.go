package pgtest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Common is a database that takes long to fill, and that several tests of a package want a copy of. It is filled for
// the first, and dropped when the package ends (Main).
type Common struct {
	Fill func(t testing.TB, db *DB)

	mu     sync.Mutex
	db     *DB
	failed bool
}

var commons struct {
	sync.Mutex
	list []*DB
}

// Copy makes a copy for a test.
func (c *Common) Copy(t testing.TB) *DB {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed {
		t.Fatal("the test that filled the common database has failed")
	}
	if c.db == nil {
		c.failed = true // until it is filled
		db := New(t)
		c.Fill(t, db)
		c.db = keep(t, db)
		c.failed = false
	}
	return c.db.Copy(t)
}

// keep makes a copy of a database that outlives the test.
func keep(t testing.TB, db *DB) *DB {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatalf("no PostgreSQL for the test: %v", err)
	}
	kept := &DB{Name: databaseName("common")}
	kept.URL = withDatabase(s.url, kept.Name)
	s.copy(t, db.Name, kept.Name)
	commons.Lock()
	defer commons.Unlock()
	commons.list = append(commons.list, kept)
	return kept
}

// dropCommons drops what outlived its tests.
func dropCommons() {
	commons.Lock()
	defer commons.Unlock()
	for _, db := range commons.list {
		if s, err := shared(); err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			_ = s.exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{db.Name}.Sanitize()+" WITH (FORCE)")
			cancel()
		}
	}
}
