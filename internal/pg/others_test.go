package pg_test

import (
	"context"
	"log/slog"

	"github.com/postern-dev/postern/internal/pg/stores"
)

// other is a second process over the same database: a store with its own caches and one connection.
type other struct {
	s   *stores.Store
	pid uint32
}

func (w *world) other() *other {
	w.t.Helper()
	pool := w.second(1)
	s, err := stores.Open(w.ctx, pool, slog.New(slog.DiscardHandler))
	w.must(err)
	s.SetNow(&w.now)
	o := &other{s: s}
	w.must(pool.QueryRow(w.ctx, `SELECT pg_backend_pid()`).Scan(&o.pid))
	return o
}

// awaitBlocked returns as soon as the session of pid waits for a lock of another.
func (w *world) awaitBlocked(pid uint32) {
	w.t.Helper()
	for blocked := false; !blocked; {
		w.must(w.s.Pool().QueryRow(w.ctx, `SELECT cardinality(pg_blocking_pids($1::int)) > 0`, pid).Scan(&blocked))
	}
}

// hold makes the next n-th commit of s wait until finish is called with what becomes of it; held is closed when
// it does.
func hold(s *stores.Store, n int) (held <-chan struct{}, finish func(error)) {
	h, end, count := make(chan struct{}), make(chan error, 1), 0
	s.HoldCommits(func(context.Context, uint32) error {
		if count++; count != n {
			return nil
		}
		close(h)
		return <-end
	})
	return h, func(err error) { s.HoldCommits(nil); end <- err }
}

// lateComer is a process whose statements stop at a door when they look at queue, between their
// snapshot and their locks, until open is called.
func (w *world) lateComer() (late *other, open func()) {
	w.t.Helper()
	door := w.second(1)
	_, err := door.Exec(w.ctx, `SELECT pg_advisory_lock(1)`)
	w.must(err)
	late = w.other()
	_, err = w.s.Pool().Exec(w.ctx, `
		CREATE FUNCTION public.pass() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
			IF current_setting('application_name') = 'late' THEN PERFORM pg_advisory_xact_lock_shared(1); END IF;
			RETURN true;
		END $$;
		ALTER TABLE postern.queue RENAME TO queue_rows;
		CREATE VIEW postern.queue AS SELECT * FROM postern.queue_rows WHERE public.pass()`)
	w.must(err)
	_, err = late.s.Pool().Exec(w.ctx, `SET application_name = 'late'`)
	w.must(err)
	return late, func() {
		_, err := door.Exec(w.ctx, `SELECT pg_advisory_unlock(1)`)
		w.must(err)
	}
}
