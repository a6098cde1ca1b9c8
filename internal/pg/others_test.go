package pg_test

import "github.com/postern-dev/postern/internal/pgtest/pgworld"

// lateComer is a process whose statements stop at a door when they look at queue, between their
// snapshot and their locks, until open is called.
func (w *world) lateComer() (late *pgworld.Other, open func()) {
	w.T.Helper()
	door := w.Second(1)
	_, err := door.Exec(w.Ctx, `SELECT pg_advisory_lock(1)`)
	w.Must(err)
	late = w.Other()
	_, err = w.S.Pool().Exec(w.Ctx, `
		CREATE FUNCTION public.pass() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
			IF current_setting('application_name') = 'late' THEN PERFORM pg_advisory_xact_lock_shared(1); END IF;
			RETURN true;
		END $$;
		ALTER TABLE postern.queue RENAME TO queue_rows;
		CREATE VIEW postern.queue AS SELECT * FROM postern.queue_rows WHERE public.pass()`)
	w.Must(err)
	_, err = late.S.Pool().Exec(w.Ctx, `SET application_name = 'late'`)
	w.Must(err)
	return late, func() {
		_, err := door.Exec(w.Ctx, `SELECT pg_advisory_unlock(1)`)
		w.Must(err)
	}
}
