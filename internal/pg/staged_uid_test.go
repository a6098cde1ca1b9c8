package pg_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
)

// pid returns the process of a transaction's session.
func (w *world) pid(tx pgx.Tx) (pid uint32) {
	w.t.Helper()
	w.must(tx.QueryRow(w.ctx, `SELECT pg_backend_pid()`).Scan(&pid))
	return pid
}

// failed returns the only transaction that ended FAILED.
func (w *world) failed() *pg.Transaction {
	w.t.Helper()
	list, _, err := w.s.List(w.ctx, w.id, pg.ListFilter{States: []string{"FAILED"}, Limit: 10})
	w.must(err)
	if len(list) != 1 {
		w.t.Fatalf("%d FAILED: %+v", len(list), list)
	}
	return list[0]
}

func conflict(t *testing.T, err error) {
	t.Helper()
	if state, doc := problem(t, err); state != "ZP409" || doc["code"] != "idempotency_conflict" || doc["differs"] == nil {
		t.Errorf("%s %v", state, doc)
	}
}

func TestSubmitWaitsForTheUIDOfAnOpenSubmit(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{true, false} {
		for _, equal := range []bool{true, false} {
			t.Run(fmt.Sprintf("commit %v equal %v", commit, equal), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.dispatcher("T", nil)
				app := w.app(2)
				first, second := w.begin(app), w.begin(app)
				w.must(w.submit(first, "q", "T", "u"))
				pid, ended := w.pid(second), make(chan error, 1)
				queue := map[bool]string{true: "q", false: "r"}[equal]
				go func() { ended <- w.submit(second, queue, "T", "u") }()
				w.awaitBlocked(pid)
				// nobody else waits: not the door of HTTP, not the drain
				if a := w.ingest(w.s, w.posted("q", "T", "other")); a[0].Err != nil {
					t.Error(a[0].Err)
				}
				w.drainAll(w.s)
				if commit {
					w.must(first.Commit(w.ctx))
				} else {
					w.must(first.Rollback(w.ctx))
				}
				err := <-ended
				if commit && !equal {
					conflict(t, err)
					w.must(second.Rollback(w.ctx))
				} else {
					w.must(err)
					w.must(second.Commit(w.ctx))
				}
				if out := w.drainAll(w.s); out != (pg.Drained{Rows: 1}) {
					t.Errorf("drained %+v", out)
				}
				if got, want := w.byUID("u").Queue, map[bool]string{true: "q", false: queue}[commit]; got != want {
					t.Errorf("in %s, want %s", got, want)
				}
				holdsTrue(t, w.ctx, w.s.Pool())
			})
		}
	}
}

func TestTheSameUIDAndBodyIsNothingNewAndAnotherBodyIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	app := w.app(1)
	tx := w.begin(app)
	w.must(w.submit(tx, "q", "T", "u"))
	w.must(w.submit(tx, "q", "T", "u")) // in the same transaction
	sub := w.begin1(tx)
	conflict(t, w.submit(sub, "r", "T", "u"))
	w.must(sub.Rollback(w.ctx))
	w.must(tx.Commit(w.ctx))
	w.must(w.submit(app, "q", "T", "u")) // staged
	conflict(t, w.submit(app, "r", "T", "u"))
	if out := w.drainAll(w.s); out != (pg.Drained{Rows: 1}) {
		t.Errorf("drained %+v", out)
	}
	w.must(w.submit(app, "q", "T", "u")) // drained
	conflict(t, w.submit(app, "r", "T", "u"))
	w.work(w.node("n"))
	w.must(w.submit(app, "q", "T", "u")) // done
	conflict(t, w.submit(app, "r", "T", "u"))
	w.ingest(w.s, w.posted("q", "T", "h"))
	w.must(w.submit(app, "q", "T", "h")) // by HTTP
	conflict(t, w.submit(app, "r", "T", "h"))
	if a := w.ingest(w.s, w.posted("q", "T", "u"), w.posted("r", "T", "u")); !a[0].Replay || fault.CodeOf(a[1].Err) != "idempotency_conflict" {
		t.Errorf("%+v", a)
	}
	if out := w.drainAll(w.s); out.Rows != 0 {
		t.Errorf("drained %+v", out)
	}
	var one, two string
	w.must(app.QueryRow(w.ctx, `SELECT postern.submit('q', 'T', '{}'), postern.submit('q', 'T', '{}')`).Scan(&one, &two))
	if w.drainAll(w.s).Rows != 2 || one == two || w.byUID(one).State != outbox.WAITING {
		t.Errorf("without a uid: %s, %s", one, two)
	}
	holdsTrue(t, w.ctx, w.s.Pool())
}

// begin1 is a savepoint.
func (w *world) begin1(tx pgx.Tx) pgx.Tx {
	w.t.Helper()
	sub, err := tx.Begin(w.ctx)
	w.must(err)
	return sub
}

func TestSubmitAndHTTPRaceForAUID(t *testing.T) {
	t.Parallel()
	for _, equal := range []bool{true, false} {
		queue := map[bool]string{true: "q", false: "r"}[equal]
		after := func(t *testing.T, w *world, first string) {
			t.Helper()
			if got := w.byUID("u").Queue; got != first {
				t.Errorf("the uid names one in %s, want %s", got, first)
			}
			if !equal {
				if f := w.failed(); f.Code != "idempotency_conflict" || f.UID != f.ID.String() || !strings.Contains(f.Error, `"u"`) || f.Queue == first {
					t.Errorf("%+v", f)
				}
			}
			holdsTrue(t, w.ctx, w.s.Pool())
		}
		t.Run(fmt.Sprintf("submit is open, HTTP posts, equal %v", equal), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.dispatcher("T", nil)
			tx := w.begin(w.app(1))
			w.must(w.submit(tx, queue, "T", "u"))
			if a := w.ingest(w.s, w.posted("q", "T", "u")); a[0].Err != nil || a[0].Replay {
				t.Errorf("%+v", a)
			}
			w.must(tx.Commit(w.ctx))
			w.drainAll(w.s)
			after(t, w, "q")
		})
		t.Run(fmt.Sprintf("HTTP is open, submit stages, equal %v", equal), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.dispatcher("T", nil)
			w.ingest(w.s, w.posted("q", "T", "0"))
			held, finish := hold(w.s, 1)
			ended := make(chan error, 1)
			go func() {
				_, err := w.s.Ingest(w.ctx, []*pg.Submission{w.posted("q", "T", "u")}, false)
				ended <- err
			}()
			<-held
			err := w.submit(w.app(1), queue, "T", "u")
			finish(nil)
			w.must(<-ended)
			w.must(err)
			w.drainAll(w.s)
			after(t, w, "q")
		})
		t.Run(fmt.Sprintf("the drain is open, HTTP posts, equal %v", equal), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.dispatcher("T", nil)
			late := w.other()
			for _, s := range []*stores.Store{w.s, late.s} {
				w.ingest(s, w.posted("q", "T", fmt.Sprintf("%p", s)), w.posted("r", "T", fmt.Sprintf("r%p", s)))
			}
			w.must(w.submit(w.app(1), "q", "T", "u"))
			held, finish := hold(w.s, 1)
			drained, posted := make(chan error, 1), make(chan []pg.Accepted, 1)
			go func() {
				_, err := pg.NewDrainer(w.s.Store).Once(w.ctx)
				drained <- err
			}()
			<-held
			go func() {
				a, err := late.s.Ingest(w.ctx, []*pg.Submission{w.posted(queue, "T", "u")}, false)
				if err != nil {
					a = []pg.Accepted{{Err: err}}
				}
				posted <- a
			}()
			w.awaitBlocked(late.pid) // for a commit of ours, not for an application's
			finish(nil)
			w.must(<-drained)
			if a := <-posted; a[0].Replay != equal || !equal && fault.CodeOf(a[0].Err) != "idempotency_conflict" {
				t.Errorf("%+v", a)
			}
			holdsTrue(t, w.ctx, w.s.Pool())
		})
	}
}

// A submit that has looked and not yet written, while the one before it is committed and drained.
func TestAUIDThatIsDrainedBetweenLookAndWriteIsSeen(t *testing.T) {
	t.Parallel()
	for _, equal := range []bool{true, false} {
		t.Run(fmt.Sprint("equal ", equal), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.dispatcher("T", nil)
			app, slow := w.app(1), w.app(1)
			door := w.begin(w.app(1))
			for _, sql := range []string{
				`CREATE FUNCTION public.door() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
					IF current_setting('application_name') = 'slow' THEN PERFORM pg_advisory_xact_lock_shared(1); END IF;
					RETURN NEW;
				END $$`,
				`CREATE TRIGGER door BEFORE INSERT ON postern.outbox FOR EACH ROW EXECUTE FUNCTION public.door()`,
			} {
				_, err := app.Exec(w.ctx, sql)
				w.must(err)
			}
			_, err := door.Exec(w.ctx, `SELECT pg_advisory_xact_lock(1)`)
			w.must(err)
			late := w.begin(slow)
			_, err = late.Exec(w.ctx, `SET LOCAL application_name = 'slow'`)
			w.must(err)
			pid, ended := w.pid(late), make(chan error, 1)
			go func() { ended <- w.submit(late, map[bool]string{true: "q", false: "r"}[equal], "T", "u") }()
			w.awaitBlocked(pid)
			w.must(w.submit(app, "q", "T", "u"))
			w.drainAll(w.s)
			w.must(door.Rollback(w.ctx))
			if err := <-ended; equal {
				w.must(err)
				w.must(late.Commit(w.ctx))
			} else {
				conflict(t, err)
				w.must(late.Rollback(w.ctx))
			}
			if out := w.drainAll(w.s); out.Rows != 0 {
				t.Errorf("drained %+v", out)
			}
			holdsTrue(t, w.ctx, w.s.Pool())
		})
	}
}

func TestARepeatableReadTransactionSubmitsWhatItCannotSee(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	app := w.app(2)
	old := func() pgx.Tx {
		tx := w.begin(app, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		w.pid(tx) // takes its snapshot
		return tx
	}
	before := func(db *pgxpool.Pool, uid string) pgx.Tx {
		tx := old()
		w.must(w.submit(db, "q", "T", uid))
		w.drainAll(w.s)
		return tx
	}
	tx := before(app, "same")
	w.must(w.submit(tx, "q", "T", "same"))
	w.must(w.submit(tx, "q", "T", "own")) // its own rows it sees
	w.must(w.submit(tx, "q", "T", "own"))
	w.must(tx.Commit(w.ctx))
	if out := w.drainAll(w.s); out != (pg.Drained{Rows: 2}) {
		t.Errorf("drained %+v", out)
	}
	tx = before(app, "other")
	w.must(w.submit(tx, "r", "T", "other"))
	w.must(tx.Commit(w.ctx))
	if out := w.drainAll(w.s); out != (pg.Drained{Rows: 1, Refused: 1}) {
		t.Errorf("drained %+v", out)
	}
	if f := w.failed(); f.Code != "idempotency_conflict" || f.Queue != "r" || w.byUID("other").Queue != "q" {
		t.Errorf("%+v", f)
	}
	tx = old()
	w.must(w.submit(app, "q", "T", "staged"))
	if err := w.submit(tx, "q", "T", "staged"); sqlState(err) != "40001" {
		t.Errorf("what was staged since: %v", err)
	}
	w.must(tx.Rollback(w.ctx))
	w.drainAll(w.s)
	if got := fmt.Sprint(w.uids("q")); got != "[same own other staged]" {
		t.Errorf("the order is %s", got)
	}
	holdsTrue(t, w.ctx, w.s.Pool())
}
