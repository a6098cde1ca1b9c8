package db

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/fault"
)

// writers are the places of those who may write at once. There are fewer than connections: a commit that waits for a
// standby keeps its connection for half a minute, and reads go on by the others meanwhile.
type writers chan struct{}

// writerWithin is how long somebody waits for a place.
const writerWithin = 10 * time.Second

// writersOf returns the places beside a pool of so many connections: a quarter of these is for reads, at least one, and
// where there is but one connection, none.
func writersOf(conns int32) writers { return make(writers, max(1, conns-max(1, conns/4))) }

// enter waits for a place, which leave gives back. Fault: "overloaded", nothing was done.
func (w writers) enter(ctx context.Context) error {
	select {
	case w <- struct{}{}:
		return nil
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, writerWithin)
	defer cancel()
	select {
	case w <- struct{}{}:
		return nil
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return ctx.Err()
		}
		return fault.New(fault.Retry, "overloaded",
			"%d commits of this process wait for the database: nothing of this was done", cap(w)).
			After(time.Second).Because(ctx.Err())
	}
}

func (w writers) leave() { <-w }

// writer returns a connection to write by. Its holder calls release. Faults: "overloaded", "database_unavailable".
func (db *DB) writer(ctx context.Context) (conn *pgxpool.Conn, release func(), err error) {
	if err := db.writers.enter(ctx); err != nil {
		return nil, nil, err
	}
	if conn, err = db.pool.Acquire(ctx); err != nil {
		db.writers.leave()
		return nil, nil, unavailable(err)
	}
	return conn, func() { conn.Release(); db.writers.leave() }, nil
}
