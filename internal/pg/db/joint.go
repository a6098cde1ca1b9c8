package db

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/safe"
)

// joint is one SQL transaction that several of the store's join: each sees what those before it did. It has no
// savepoints: a call that is refused has written nothing yet, and an error of the database ends all of it.
type joint struct {
	db     *DB
	conn   *pgxpool.Conn
	free   func()   // gives conn back
	broken bool     // by an error of the database; a dry run begins anew then
	lacks  error    // the error that mend has to remove, on another connection, before all of it can be tried again
	Dry    bool     // rolled back in the end, whatever happens
	undo   []func() // its end calls them to take back what this process remembers of it
	newest Acked    // a row by which its commit can be found again
}

type jointKey struct{}

// JointOf returns the SQL transaction that what is done under ctx joins; nil: each begins its own.
func JointOf(ctx context.Context) *joint {
	j, _ := ctx.Value(jointKey{}).(*joint)
	return j
}

// DryRun returns a context under which this store does all that it is asked to in one transaction, sees
// what it did, and keeps nothing: end rolls it back. It holds the locks of what it touched until then, so
// it is to end soon. It is for one goroutine.
func (db *DB) DryRun(ctx context.Context) (_ context.Context, end func()) {
	j := &joint{db: db, Dry: true}
	return context.WithValue(ctx, jointKey{}, j), j.end
}

// Together runs fn under a context in which all that the store does is one commit, behind the locks that lock takes. A
// Retry fault "broken": nothing was done. In a dry run it is a part of that, and commits nothing.
func (db *DB) Together(ctx context.Context, lock func(*Txn, *pgx.Batch), fn func(context.Context) error) error {
	j := JointOf(ctx)
	if j == nil || !j.Dry {
		j = &joint{db: db}
		defer j.end()
	}
	j.broken = false
	err := j.run(ctx, func(t *Txn) error {
		b := &pgx.Batch{}
		lock(t, b)
		return t.Commit(ctx, b)
	})
	if err == nil {
		err = fn(context.WithValue(ctx, jointKey{}, j))
	}
	if j.broken {
		j.end()
		if j.lacks != nil {
			if err := db.mend(ctx, j.lacks); err != nil {
				return err
			}
		}
		return fault.New(fault.Retry, "broken", "the database broke off several changes at once").Because(err)
	}
	if err != nil || j.Dry {
		return err
	}
	t := &Txn{Conn: j.conn, db: db, began: true, Newest: j.newest}
	return Known(t.Commit(ctx, &pgx.Batch{}))
}

// Again runs what does something Together, and once more where the database broke that off, for Attempts times. It does
// not run again where a statement has waited for a lock as long as it may: it would wait as long once more.
func Again(together func() error) (err error) {
	for try := 1; ; try++ {
		err = together()
		state := SQLState(err)
		if fault.CodeOf(err) != "broken" || try == Attempts || state == "55P03" || state == "57014" {
			return err
		}
	}
}

// Db is where the store reads: the pool, or the transaction that it has joined.
func (db *DB) Db(ctx context.Context) Querier {
	if j := JointOf(ctx); j != nil && j.conn != nil {
		return j.conn
	}
	return db.pool
}

// run is runOnce inside the joint transaction.
func (j *joint) run(ctx context.Context, fn func(*Txn) error) error {
	if j.conn == nil {
		conn, release, err := j.db.writer(ctx)
		if err != nil {
			return err
		}
		j.conn, j.free = conn, release
	}
	if j.conn.Conn().PgConn().TxStatus() == 'I' {
		if _, err := j.conn.Exec(ctx, "BEGIN"); err != nil {
			return Known(err)
		}
	}
	err := recovered(ctx, &Txn{Conn: j.conn, db: j.db, began: true, Joint: j}, fn)
	// its session has ended, so that nothing of the whole can be committed
	if p := (*safe.Panic)(nil); errors.As(err, &p) {
		return err
	}
	if unprepared(err) {
		j.conn.Conn().Close(context.WithoutCancel(ctx))
	}
	if j.conn.Conn().PgConn().TxStatus() != 'T' {
		j.broken = true
		if j.Dry { // then mend may let it run again
			if _, e := j.conn.Exec(context.WithoutCancel(ctx), "ROLLBACK"); e != nil {
				j.conn.Conn().Close(context.WithoutCancel(ctx))
			}
		}
	}
	return broken(j.conn, err)
}

// lack says whether err asks for what needs another connection, or may take long: a commit that holds locks waits for
// neither.
func (j *joint) lack(err error) bool {
	l := lack(nil)
	_, day := dayMissing(err)
	if j == nil || j.Dry || !day && (!errors.As(err, &l) || !l.Elsewhere()) {
		return false
	}
	j.broken, j.lacks = true, err
	return true
}

func (j *joint) end() {
	if j.conn == nil {
		return
	}
	defer func() { j.conn = nil }()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if j.conn.Conn().PgConn().TxStatus() != 'I' {
		if _, err := j.conn.Exec(ctx, "ROLLBACK"); err != nil {
			j.conn.Conn().Close(ctx)
		}
	}
	j.free()
	for _, undo := range j.undo {
		undo()
	}
}

// Broken says whether an error of the database has ended the transaction that what is done under ctx joins.
func Broken(ctx context.Context) bool {
	j := JointOf(ctx)
	return j != nil && j.broken
}

// AtEnd has undo called when the joint transaction has ended, however it ended.
func (j *joint) AtEnd(undo func()) { j.undo = append(j.undo, undo) }
