package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/safe"
	"github.com/postern-dev/postern/internal/twin"
)

// Txn is one SQL transaction whose BEGIN travels with its first batch and whose COMMIT travels with its
// last one: two round trips fewer, while locks are held. A single batch needs neither.
type Txn struct {
	Conn  *pgxpool.Conn
	db    *DB
	began bool
	done  bool
	ended bool // its COMMIT may have been sent

	Version int64  // the version that LockVersion found
	Joint   *joint // its own beginner commits it
	Newest  Acked  // a row by which its commit can be found again, if it has one
}

// Attempts is how often a transaction that PostgreSQL aborted for concurrency is run again.
const Attempts = 8

// Run opens a transaction for fn, which must end it with commit, and rolls back what fn leaves open. It
// runs fn again after a deadlock or serialization failure, and after something it needs
// was missing and has been made.
func (db *DB) Run(ctx context.Context, fn func(t *Txn) error) error {
	for try := 1; ; try++ {
		err := db.runOnce(ctx, fn)
		if err == nil || JointOf(ctx).lack(err) {
			return err
		}
		if broken := db.mend(ctx, err); broken != nil {
			return broken
		}
		if try == Attempts {
			if fault.KindOf(err) == fault.Retry {
				return err
			}
			return fault.New(fault.Retry, "overloaded", "others were in the way of this %d times in a row", Attempts).
				After(time.Second).Because(err)
		}
	}
}

// mend does what a transaction needs before it can run again, or returns why it cannot.
func (db *DB) mend(ctx context.Context, err error) error {
	if unprepared(err) && JointOf(ctx) == nil { // its connection is closed
		return nil
	}
	if day, missing := dayMissing(err); missing {
		if SQLState(err) == "42P01" { // its span was of today, which is what is made anew
			day = time.Time{}
		}
		return db.makeDay(ctx, day)
	}
	if l := lack(nil); errors.As(err, &l) {
		return l.Mend(ctx)
	}
	switch SQLState(err) {
	case "40001", "40P01":
		return nil
	case "23505":
		var e *pgconn.PgError
		if errors.As(err, &e) && again[e.ConstraintName] { // the other one has committed: now it is seen
			return nil
		}
	}
	return err
}

func (db *DB) runOnce(ctx context.Context, fn func(t *Txn) error) (err error) {
	if j := JointOf(ctx); j != nil {
		return j.run(ctx, fn)
	}
	conn, release, err := db.writer(ctx)
	if err != nil {
		return err
	}
	t := &Txn{Conn: conn, db: db}
	defer func() {
		err = broken(conn, err)
		if unprepared(err) {
			conn.Conn().Close(context.WithoutCancel(ctx))
		} else if t.began && !t.done {
			back, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			if _, e := conn.Exec(back, "ROLLBACK"); e != nil {
				conn.Conn().Close(back)
			}
		}
		release()
	}()
	return recovered(ctx, t, fn)
}

// recovered runs a part of a transaction. A panic ends its session, and with it the transaction. Where that came before
// its commit, nothing was done; else it is not known, and so it is "commit_unknown".
func recovered(ctx context.Context, t *Txn, fn func(*Txn) error) error {
	err := safe.Try("transaction", func() error { return fn(t) })
	if p, ok := err.(*safe.Panic); ok { //nolint:errorlint // as Try returns it; what wraps one has been here
		safe.Noted(ctx)
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		t.Conn.Conn().Close(end)
		if !t.ended && t.Joint == nil {
			return fault.New(fault.Internal, "internal",
				"the program failed while this was being done, and stored nothing of it").
				Because(p)
		}
		return panicked(p)
	}
	return err
}

// panicked is what somebody is told who waits for what ended by a panic.
func panicked(p *safe.Panic) error {
	return fault.New(fault.Retry, "commit_unknown",
		"the program failed while this was being done, and may have committed it: send it again, with the same Idempotency-Key if it has one").
		After(time.Second).Because(p)
}

// Send runs the batch inside the transaction. The callbacks of its queries have run when it returns.
func (t *Txn) Send(ctx context.Context, b *pgx.Batch) error {
	if t.began {
		return t.Conn.SendBatch(ctx, b).Close()
	}
	t.began = true
	first := &pgx.Batch{}
	first.Queue("BEGIN")
	first.QueuedQueries = append(first.QueuedQueries, b.QueuedQueries...)
	return t.Conn.SendBatch(ctx, first).Close()
}

// Commit runs the batch and commits. Its context is not that of a client that may leave: it has half a minute, since it
// may wait for a standby. Its end closes the connection and cancels nothing (see the package watch): a cancelled wait
// for a standby reports success although no standby has the commit. Only an error that leaves the session alive refuses
// the commit: such a warning, a connection lost meanwhile, and an error that ends the session (FATAL, PANIC), which may
// come behind the commit, are "commit_unknown".
func (t *Txn) Commit(ctx context.Context, b *pgx.Batch) error {
	if t.Joint != nil {
		if t.Newest.kind != 0 {
			t.Joint.newest = t.Newest
		}
		return t.Send(ctx, b)
	}
	t.ended = true
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if hold := t.db.beforeCommit; hold != nil {
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if err := hold(ctx, t.Conn.Conn().PgConn().PID()); err != nil {
			return err
		}
		b = &pgx.Batch{}
	}
	doubt := standbyDoubt(t.Conn.Conn())
	doubt.Store(nil)
	var tag pgconn.CommandTag
	sent := b.Len()
	var err error
	if t.began || sent == 0 {
		b.Queue("COMMIT").Exec(func(ct pgconn.CommandTag) error { tag = ct; return nil })
		err = t.Send(ctx, b)
	} else { // PostgreSQL makes one transaction of a batch by itself, and saves us two statements
		tag = pgconn.NewCommandTag("COMMIT")
		err = t.Conn.SendBatch(ctx, b).Close()
	}
	warning := doubt.Load()
	if twin.Planted("standby_not_waited_for") {
		warning = nil
	}
	switch {
	case err == nil && tag.String() == "COMMIT" && warning == nil:
		t.done = true
		t.db.witness.saw(t.Newest)
		note(ctx)
		return nil
	case err == nil && tag.String() == "ROLLBACK":
		t.done = true
		return fmt.Errorf("transaction of %d statements was rolled back", sent)
	case refused(err):
		return err
	case err == nil && warning != nil:
		err = (*pgconn.PgError)(warning)
	}
	t.done = true
	t.db.alone.doubt()
	t.Conn.Conn().Close(ctx)
	if twin.Planted("lost_commit_is_no") {
		return unavailable(err)
	}
	return commitUnknown(err)
}

// Durable returns once what this process has read is as safe as a commit of its own. A commit whose wait for the
// standby was cancelled can be read like any other, and goes with the primary: so an answer that rests on rows of
// others alone, as that to a repeated request, waits as theirs should have. Faults are those of Commit.
//
// The message is a record of the log behind all that could be read; where commits wait for no standby, none is written,
// and where that is known, nothing is asked.
func (db *DB) Durable(ctx context.Context) error {
	if JointOf(ctx) != nil || db.alone.is() {
		return nil
	}
	return db.Run(ctx, func(t *Txn) error {
		b := &pgx.Batch{}
		b.Queue(`SELECT CASE WHEN current_setting('synchronous_standby_names') <> ''
			THEN pg_logical_emit_message(true, 'postern', '') END`)
		return t.Commit(ctx, b)
	})
}

// Exec runs one statement as a transaction of its own. Its context ends it: unlike a commit with
// decisions in it, it can simply be repeated. Where its answer is lost, or its wait for the standby was
// cancelled, it is "commit_unknown".
func (db *DB) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	if j := JointOf(ctx); j != nil {
		err = j.run(ctx, func(t *Txn) error {
			tag, err = t.Conn.Exec(ctx, sql, args...)
			return err
		})
		return tag, err
	}
	if err := db.writers.enter(ctx); err != nil {
		return tag, err
	}
	defer db.writers.leave()
	hold := db.beforeCommit
	if hold == nil {
		durable := true
		err = db.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
			doubt := standbyDoubt(c.Conn())
			doubt.Store(nil)
			tag, err = c.Exec(ctx, sql, args...)
			durable = doubt.Load() == nil
			return err
		})
		return tag, db.wrote(ctx, durable, err)
	}
	err = pgx.BeginFunc(ctx, db.pool, func(tx pgx.Tx) error {
		if tag, err = tx.Exec(ctx, sql, args...); err != nil {
			return err
		}
		return hold(ctx, tx.Conn().PgConn().PID())
	})
	return tag, Known(err)
}

// WriteRow is Exec for a statement that returns one row, which is read into dest; without one it is pgx.ErrNoRows.
func (db *DB) WriteRow(ctx context.Context, sql string, args []any, dest ...any) error {
	if j := JointOf(ctx); j != nil {
		return j.run(ctx, func(t *Txn) error { return t.Conn.QueryRow(ctx, sql, args...).Scan(dest...) })
	}
	if err := db.writers.enter(ctx); err != nil {
		return err
	}
	defer db.writers.leave()
	durable, err := db.writeOne(ctx, sql, args, dest...)
	if IsNoRows(err) {
		return err
	}
	return db.wrote(ctx, durable, err)
}

// wrote is the error of a statement that is a transaction of its own.
func (db *DB) wrote(ctx context.Context, durable bool, err error) error {
	if !durable {
		db.alone.doubt()
	}
	if err == nil && !durable && !twin.Planted("standby_not_waited_for") {
		return commitUnknown(errNotOnStandby)
	}
	if err == nil {
		note(ctx)
	}
	return Known(written(err))
}

var errNotOnStandby = errors.New("its wait for the standby was cancelled")

// Rollback gives up what the transaction holds; fn may then return nil.
func (t *Txn) Rollback(ctx context.Context) error {
	if t.Joint != nil {
		return nil // nothing was written
	}
	t.done = true
	if !t.began {
		return nil
	}
	_, err := t.Conn.Exec(context.WithoutCancel(ctx), "ROLLBACK")
	return err
}

// SQLState returns the code of an error of PostgreSQL, "" for other errors.
func SQLState(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}
