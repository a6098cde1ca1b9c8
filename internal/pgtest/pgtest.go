// Package pgtest gives each test a PostgreSQL database of its own, migrated: a clone of a template that is made once
// per set of migrations. Tests of one package and of several may run at once.
//
// The server is that of POSTERN_TEST_DATABASE_URL (a superuser's URL; `make test` sets it), else one that this process
// starts on first use, with fsync off. DATABASE_URL is never read: it may name production. Without any PostgreSQL a
// test fails with the remedy. A package that uses pgtest should have
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
// so that the server is stopped before the process ends; without it, it is stopped right after.
package pgtest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// DB is the database of one test.
type DB struct {
	Pool *pgxpool.Pool // at most four connections, closed at the end of the test
	URL  string        // a superuser's, for tests and processes that open connections of their own
	Name string
}

// New makes a database for the test. At the end of the test it is dropped, also while sessions are connected to it;
// that of a failed test is kept and named in the output.
func New(t testing.TB) *DB {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := shared()
	if err != nil {
		t.Fatalf("no PostgreSQL for the test: %v", err)
	}
	name := databaseName(t.Name())
	if err := s.clone(ctx, name); err != nil {
		t.Fatalf("make the database %s: %v", name, err)
	}
	db := &DB{URL: withDatabase(s.url, name), Name: name}
	t.Cleanup(func() { s.discard(t, db) })
	db.Pool = db.NewPool(t, 4)
	return db
}

// NewPool opens another pool on the database, with at most max connections, closed at the end of the test.
func (db *DB) NewPool(t testing.TB, max int32) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatalf("open a pool on %s: %v", db.Name, err)
	}
	cfg.MaxConns = max
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatalf("open a pool on %s: %v", db.Name, err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// Copy makes a copy of the database as it is now, as a restored backup is. It ends all sessions of the original.
func (db *DB) Copy(t testing.TB) *DB {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatalf("no PostgreSQL for the test: %v", err)
	}
	name := databaseName(t.Name())
	s.copy(t, db.Name, name)
	c := &DB{URL: withDatabase(s.url, name), Name: name}
	t.Cleanup(func() { s.discard(t, c) })
	c.Pool = c.NewPool(t, 4)
	return c
}

// copy copies a database once its sessions have gone, which it ends.
func (s *server) copy(t testing.TB, from, to string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		_, err := s.admin.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", from)
		if err == nil {
			err = s.exec(ctx, "CREATE DATABASE "+pgx.Identifier{to}.Sanitize()+
				" TEMPLATE "+pgx.Identifier{from}.Sanitize()+" STRATEGY FILE_COPY")
		}
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("copy the database %s: %v", from, err)
		}
	}
}

// Empty makes a database without migrations; otherwise it is like New. For tests of the migrations themselves.
func Empty(t testing.TB) *DB {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := shared()
	if err != nil {
		t.Fatalf("no PostgreSQL for the test: %v", err)
	}
	name := databaseName(t.Name())
	if err := s.exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		t.Fatalf("make the database %s: %v", name, err)
	}
	db := &DB{URL: withDatabase(s.url, name), Name: name}
	t.Cleanup(func() { s.discard(t, db) })
	db.Pool = db.NewPool(t, 4)
	return db
}

// discard drops the database of a test, or names it if the test failed. A database that the server does not drop in
// time stays: the test is over, and its result stands. A session that answers no signal (one in the middle of its
// authentication, or whose client reads no result) holds up each DROP of its server.
func (s *server) discard(t testing.TB, db *DB) {
	if t.Failed() {
		t.Logf("kept the database %s", db.URL)
		if s.own != nil {
			t.Logf("its server stops with this run; to look inside afterwards, run the test under `go run ./internal/pgtest/cmd/with-postgres -keep -- go test ...`")
		}
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{db.Name}.Sanitize()+" WITH (FORCE)"); err != nil {
		t.Logf("the database %s stays, since it was not dropped: %v; sessions that work: %s",
			db.Name, err, s.working())
	}
}

// working lists the sessions that do anything but wait for a statement.
func (s *server) working() (list string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return err.Error()
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, `SELECT coalesce(string_agg(format('%s %s %s %s %s %s since %s: %s',
			pid, backend_type, datname, state, wait_event_type, wait_event,
			coalesce(query_start, backend_start), left(query, 100)), E'\n'), 'none')
		FROM pg_stat_activity
		WHERE state IS DISTINCT FROM 'idle'
			AND wait_event IS DISTINCT FROM 'ProcSignalBarrier'
			AND pid <> pg_backend_pid()`).Scan(&list)
	if err != nil {
		return err.Error()
	}
	return list
}

// databaseName makes a name that no other test has, from which a person recognises the test; at most 63 bytes.
func databaseName(test string) string {
	short := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '_'
	}, test)
	if len(short) > 40 {
		short = short[:40]
	}
	id := uuid.New()
	return fmt.Sprintf("t_%s_%x", short, id[:5])
}

// Main runs the tests of a package and stops the server that they started. Call it from TestMain; it does not return.
func Main(m interface{ Run() int }) {
	code := m.Run()
	dropCommons()
	stopOwn()
	os.Exit(code)
}
