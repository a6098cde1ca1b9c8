package pg_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
)

// TestReleaseLeavesWhatALiveNodeTookMeanwhile holds a release between its snapshot and its locks, while
// another one releases the queue and a live node claims it.
func TestReleaseLeavesWhatALiveNodeTookMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	id := w.post("q", "T", "a")[0]
	dead, live := w.node("dead"), w.node("live")
	w.claim(dead, everything())
	w.later(11 * time.Second)
	_, err := w.s.Beat(w.ctx, live)
	w.must(err)
	_, err = w.s.Bury(w.ctx)
	w.must(err)

	door := w.second(1)
	_, err = door.Exec(w.ctx, `SELECT pg_advisory_lock(1)`)
	w.must(err)
	late := w.other() // its releases pass the door
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
	released := make(chan int, 1)
	go func() {
		n, err := late.s.Release(w.ctx)
		if err != nil {
			t.Error(err)
		}
		released <- n
	}()
	w.awaitBlocked(late.pid)

	if n, err := w.s.Release(w.ctx); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	l := w.claim(live, everything())
	if len(l) != 1 || !l[0].Resume {
		t.Fatalf("the live node claimed %+v", l)
	}
	_, err = door.Exec(w.ctx, `SELECT pg_advisory_unlock(1)`)
	w.must(err)
	if n := <-released; n != 0 {
		t.Errorf("the late release took %d queues from a live node", n)
	}
	if out := w.settle(w.answer(l[0], done())); out[0].Fenced || w.state(id) != outbox.DONE {
		t.Errorf("%+v, and the transaction is %s", out, w.state(id))
	}
}
