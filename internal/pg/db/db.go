package db

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// DB is a database, with what this process remembers of it. It is safe for concurrent use.
type DB struct {
	pool  *pgxpool.Pool
	Looks *pgxpool.Pool // pool, unless LookThrough has said otherwise
	Log   *slog.Logger

	writers writers // at once, by pool

	// beforeCommit, set by tests of pairs of statements, runs when everything is written and nothing is
	// committed; an error rolls back.
	beforeCommit func(ctx context.Context, pid uint32) error

	alone   alone    // whether commits are known to wait for no standby
	witness *Witness // remembers what was acknowledged; nil: nothing does

	spans  atomic.Pointer[[]Span] // where the rows of each day lie, as far as this process knows
	clock  atomic.Pointer[clock]
	moving sync.Mutex // held while the clock is moved
}

// NewDB makes the database of a pool, which stays the caller's.
func NewDB(pool *pgxpool.Pool, log *slog.Logger) *DB {
	return &DB{pool: pool, Looks: pool, writers: writersOf(pool.Config().MaxConns), Log: log}
}

// Leap has numbers that are drawn from sequences go on from the time, so that none is given again that was given in a
// time that this database has lost (docs/numbers.md). To be called by each process that starts, before it draws any.
func (db *DB) Leap(ctx context.Context) error {
	_, err := db.pool.Exec(ctx, `SELECT postern.leap()`)
	return Known(err)
}

// Pool is the pool under the store.
func (db *DB) Pool() *pgxpool.Pool { return db.pool }

// LookThrough gives the questions that a process asks all the time (deliveries, callbacks, staged rows, processors,
// the configuration) a pool of their own, of a connection or two. Behind a day that is made or dropped, each
// connection plans its next statements anew. In the large pool each of these questions would be planned in each
// connection, while other callers wait. LookThrough is called before anything runs.
func (db *DB) LookThrough(pool *pgxpool.Pool) { db.Looks = pool }

// Close closes the pools. It is for callers that have no use for them without the store.
func (db *DB) Close() {
	db.pool.Close()
	db.Looks.Close()
}

// HoldCommits has every transaction call hold between its writes and its commit, with the process id of its session; an
// error rolls it back. nil ends it. It is for tests of pairs of statements.
func (db *DB) HoldCommits(hold func(ctx context.Context, pid uint32) error) { db.beforeCommit = hold }

// Querier is a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}
