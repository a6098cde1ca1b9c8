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
	pgreads "github.com/postern-dev/postern/internal/pg/reads"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// pid returns the process of a transaction's session.
func (w *world) pid(tx pgx.Tx) (pid uint32) {
	w.T.Helper()
	w.Must(tx.QueryRow(w.Ctx, `SELECT pg_backend_pid()`).Scan(&pid))
	return pid
}

// failed returns the only transaction that ended FAILED.
func (w *world) failed() *pg.Transaction {
	w.T.Helper()
	list, _, err := w.S.Reads.ListTransactions(w.Ctx, w.ID, pgreads.ListFilter{States: []string{"FAILED"}, Limit: 10})
	w.Must(err)
	if len(list) != 1 {
		w.T.Fatalf("%d FAILED: %+v", len(list), list)
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
				w.Dispatcher("T", nil)
				app := w.app(2)
				first, second := w.Begin(app), w.Begin(app)
				w.Must(w.submit(first, "q", "T", "u"))
				pid, ended := w.pid(second), make(chan error, 1)
				queue := map[bool]string{true: "q", false: "r"}[equal]
				go func() { ended <- w.submit(second, queue, "T", "u") }()
				w.AwaitBlocked(pid)
				// a post by HTTP and a drain do not wait
				if a := w.Ingest(w.S, w.posted("q", "T", "other")); a[0].Err != nil {
					t.Error(a[0].Err)
				}
				w.drainAll(w.S)
				if commit {
					w.Must(first.Commit(w.Ctx))
				} else {
					w.Must(first.Rollback(w.Ctx))
				}
				err := <-ended
				if commit && !equal {
					conflict(t, err)
					w.Must(second.Rollback(w.Ctx))
				} else {
					w.Must(err)
					w.Must(second.Commit(w.Ctx))
				}
				if out := w.drainAll(w.S); out != (pg.Drained{Rows: 1}) {
					t.Errorf("drained %+v", out)
				}
				if got, want := w.ByUID("u").Queue, map[bool]string{true: "q", false: queue}[commit]; got != want {
					t.Errorf("in %s, want %s", got, want)
				}
				pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
			})
		}
	}
}

func TestTheSameUIDAndBodyIsNothingNewAndAnotherBodyIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	app := w.app(1)
	tx := w.Begin(app)
	w.Must(w.submit(tx, "q", "T", "u"))
	w.Must(w.submit(tx, "q", "T", "u")) // in the same transaction
	sub := w.begin1(tx)
	conflict(t, w.submit(sub, "r", "T", "u"))
	w.Must(sub.Rollback(w.Ctx))
	w.Must(tx.Commit(w.Ctx))
	w.Must(w.submit(app, "q", "T", "u")) // staged
	conflict(t, w.submit(app, "r", "T", "u"))
	if out := w.drainAll(w.S); out != (pg.Drained{Rows: 1}) {
		t.Errorf("drained %+v", out)
	}
	w.Must(w.submit(app, "q", "T", "u")) // drained
	conflict(t, w.submit(app, "r", "T", "u"))
	w.work(w.Node("n"))
	w.Must(w.submit(app, "q", "T", "u")) // done
	conflict(t, w.submit(app, "r", "T", "u"))
	w.Ingest(w.S, w.posted("q", "T", "h"))
	w.Must(w.submit(app, "q", "T", "h")) // by HTTP
	conflict(t, w.submit(app, "r", "T", "h"))
	if a := w.Ingest(w.S, w.posted("q", "T", "u"), w.posted("r", "T", "u")); !a[0].Replay || fault.CodeOf(a[1].Err) != "idempotency_conflict" {
		t.Errorf("%+v", a)
	}
	if out := w.drainAll(w.S); out.Rows != 0 {
		t.Errorf("drained %+v", out)
	}
	var one, two string
	w.Must(app.QueryRow(w.Ctx, `SELECT postern.submit('q', 'T', '{}'), postern.submit('q', 'T', '{}')`).Scan(&one, &two))
	if w.drainAll(w.S).Rows != 2 || one == two || w.ByUID(one).State != outbox.WAITING {
		t.Errorf("without a uid: %s, %s", one, two)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

// begin1 is a savepoint.
func (w *world) begin1(tx pgx.Tx) pgx.Tx {
	w.T.Helper()
	sub, err := tx.Begin(w.Ctx)
	w.Must(err)
	return sub
}

func TestSubmitAndHTTPRaceForAUID(t *testing.T) {
	t.Parallel()
	for _, equal := range []bool{true, false} {
		queue := map[bool]string{true: "q", false: "r"}[equal]
		after := func(t *testing.T, w *world, first string) {
			t.Helper()
			if got := w.ByUID("u").Queue; got != first {
				t.Errorf("the uid names one in %s, want %s", got, first)
			}
			if !equal {
				if f := w.failed(); f.Code != "idempotency_conflict" || f.UID != f.ID.String() || !strings.Contains(f.Error, `"u"`) || f.Queue == first {
					t.Errorf("%+v", f)
				}
			}
			pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
		}
		t.Run(fmt.Sprintf("submit is open, HTTP posts, equal %v", equal), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Dispatcher("T", nil)
			tx := w.Begin(w.app(1))
			w.Must(w.submit(tx, queue, "T", "u"))
			if a := w.Ingest(w.S, w.posted("q", "T", "u")); a[0].Err != nil || a[0].Replay {
				t.Errorf("%+v", a)
			}
			w.Must(tx.Commit(w.Ctx))
			w.drainAll(w.S)
			after(t, w, "q")
		})
		t.Run(fmt.Sprintf("HTTP is open, submit stages, equal %v", equal), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Dispatcher("T", nil)
			w.Ingest(w.S, w.posted("q", "T", "0"))
			held, finish := pgworld.Hold(w.S, 1)
			ended := make(chan error, 1)
			go func() {
				_, err := w.S.Ingest(w.Ctx, []*pg.Submission{w.posted("q", "T", "u")}, false)
				ended <- err
			}()
			<-held
			err := w.submit(w.app(1), queue, "T", "u")
			finish(nil)
			w.Must(<-ended)
			w.Must(err)
			w.drainAll(w.S)
			after(t, w, "q")
		})
		t.Run(fmt.Sprintf("the drain is open, HTTP posts, equal %v", equal), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Dispatcher("T", nil)
			late := w.Other()
			for _, s := range []*stores.Store{w.S, late.S} {
				w.Ingest(s, w.posted("q", "T", fmt.Sprintf("%p", s)), w.posted("r", "T", fmt.Sprintf("r%p", s)))
			}
			w.Must(w.submit(w.app(1), "q", "T", "u"))
			held, finish := pgworld.Hold(w.S, 1)
			drained, posted := make(chan error, 1), make(chan []pg.Accepted, 1)
			go func() {
				_, err := pg.NewDrainer(w.S.Store).Once(w.Ctx)
				drained <- err
			}()
			<-held
			go func() {
				a, err := late.S.Ingest(w.Ctx, []*pg.Submission{w.posted(queue, "T", "u")}, false)
				if err != nil {
					a = []pg.Accepted{{Err: err}}
				}
				posted <- a
			}()
			w.AwaitBlocked(late.PID) // for a commit of ours, not for an application's
			finish(nil)
			w.Must(<-drained)
			if a := <-posted; a[0].Replay != equal || !equal && fault.CodeOf(a[0].Err) != "idempotency_conflict" {
				t.Errorf("%+v", a)
			}
			pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
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
			w.Dispatcher("T", nil)
			app, slow := w.app(1), w.app(1)
			door := w.Begin(w.app(1))
			for _, sql := range []string{
				`CREATE FUNCTION public.door() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
					IF current_setting('application_name') = 'slow' THEN PERFORM pg_advisory_xact_lock_shared(1); END IF;
					RETURN NEW;
				END $$`,
				`CREATE TRIGGER zzz_door BEFORE INSERT ON postern.outbox FOR EACH ROW EXECUTE FUNCTION public.door()`,
			} {
				_, err := app.Exec(w.Ctx, sql)
				w.Must(err)
			}
			_, err := door.Exec(w.Ctx, `SELECT pg_advisory_xact_lock(1)`)
			w.Must(err)
			late := w.Begin(slow)
			_, err = late.Exec(w.Ctx, `SET LOCAL application_name = 'slow'`)
			w.Must(err)
			pid, ended := w.pid(late), make(chan error, 1)
			go func() { ended <- w.submit(late, map[bool]string{true: "q", false: "r"}[equal], "T", "u") }()
			w.AwaitBlocked(pid)
			w.Must(w.submit(app, "q", "T", "u"))
			w.drainAll(w.S)
			w.Must(door.Rollback(w.Ctx))
			if err := <-ended; equal {
				w.Must(err)
				w.Must(late.Commit(w.Ctx))
			} else {
				conflict(t, err)
				w.Must(late.Rollback(w.Ctx))
			}
			want := pg.Drained{}
			if equal { // the row is there, and the drain drops it
				want.Rows = 1
			}
			if out := w.drainAll(w.S); out != want {
				t.Errorf("drained %+v, want %+v", out, want)
			}
			var n int
			if w.Scan(`SELECT count(*) FROM postern.task`, &n); n != 1 {
				t.Errorf("there are %d transactions", n)
			}
			pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
		})
	}
}

func TestARepeatableReadTransactionSubmitsWhatItCannotSee(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	app := w.app(2)
	old := func() pgx.Tx {
		tx := w.Begin(app, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		w.pid(tx) // takes its snapshot
		return tx
	}
	before := func(db *pgxpool.Pool, uid string) pgx.Tx {
		tx := old()
		w.Must(w.submit(db, "q", "T", uid))
		w.drainAll(w.S)
		return tx
	}
	tx := before(app, "same")
	w.Must(w.submit(tx, "q", "T", "same"))
	w.Must(w.submit(tx, "q", "T", "own")) // its own rows it sees
	w.Must(w.submit(tx, "q", "T", "own"))
	w.Must(tx.Commit(w.Ctx))
	if out := w.drainAll(w.S); out != (pg.Drained{Rows: 2}) {
		t.Errorf("drained %+v", out)
	}
	tx = before(app, "other")
	w.Must(w.submit(tx, "r", "T", "other"))
	w.Must(tx.Commit(w.Ctx))
	if out := w.drainAll(w.S); out != (pg.Drained{Rows: 1, Refused: 1}) {
		t.Errorf("drained %+v", out)
	}
	if f := w.failed(); f.Code != "idempotency_conflict" || f.Queue != "r" || w.ByUID("other").Queue != "q" {
		t.Errorf("%+v", f)
	}
	tx = old()
	w.Must(w.submit(app, "q", "T", "staged"))
	if err := w.submit(tx, "q", "T", "staged"); sqlState(err) != "40001" {
		t.Errorf("what was staged since: %v", err)
	}
	w.Must(tx.Rollback(w.Ctx))
	w.drainAll(w.S)
	if got := fmt.Sprint(w.uids("q")); got != "[same own other staged]" {
		t.Errorf("the order is %s", got)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}
