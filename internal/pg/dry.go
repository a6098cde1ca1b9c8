package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// dryRun is one SQL transaction in which several of the store's are tried, each behind a savepoint, and
// which is rolled back in the end.
type dryRun struct {
	s    *Store
	conn *pgxpool.Conn
	made []int64 // ids of queues that only this transaction knows
}

type dryKey struct{}

// DryRun returns a context under which this store does all that it is asked to in one transaction, sees
// what it did, and keeps nothing: end rolls it back. It holds the locks of what it touched until then, so
// it is to end soon. It is for one goroutine.
func (s *Store) DryRun(ctx context.Context) (_ context.Context, end func()) {
	d := &dryRun{s: s}
	return context.WithValue(ctx, dryKey{}, d), d.end
}

func dryOf(ctx context.Context) *dryRun {
	d, _ := ctx.Value(dryKey{}).(*dryRun)
	return d
}

// db is where the store reads: the pool, or inside a dry run its transaction.
func (s *Store) db(ctx context.Context) querier {
	if d := dryOf(ctx); d != nil && d.conn != nil {
		return d.conn
	}
	return s.pool
}

// run is runOnce inside the dry run.
func (d *dryRun) run(ctx context.Context, fn func(*txn) error) error {
	if d.conn == nil {
		conn, err := d.s.pool.Acquire(ctx)
		if err != nil {
			return unavailable(err)
		}
		d.conn = conn
		if _, err := conn.Exec(ctx, "BEGIN"); err != nil {
			return known(err)
		}
	}
	if _, err := d.conn.Exec(ctx, "SAVEPOINT tried"); err != nil {
		return known(err)
	}
	t := &txn{conn: d.conn, s: d.s, began: true, dry: d}
	err := fn(t)
	if !t.done {
		if _, e := d.conn.Exec(context.WithoutCancel(ctx), "ROLLBACK TO SAVEPOINT tried"); e != nil && err == nil {
			err = e
		}
	}
	return known(err)
}

// keep is commit inside the dry run: everything is written, and stays open.
func (d *dryRun) keep(ctx context.Context, t *txn, b *pgx.Batch) error {
	if err := t.send(ctx, b); err != nil {
		return err
	}
	t.done = true
	return nil
}

func (d *dryRun) end() {
	if d.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := d.conn.Exec(ctx, "ROLLBACK"); err != nil {
		d.conn.Conn().Close(ctx)
	}
	d.conn.Release()
	for _, id := range d.made {
		d.s.forgetQueue(id)
	}
}
