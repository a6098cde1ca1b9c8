package pg_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// submitAfter calls postern.submit with depends_on.
func (w *world) submitAfter(db pgworld.QueryRower, queue, uid string, on ...string) error {
	var got string
	var q *string
	if queue != "" {
		q = &queue
	}
	return db.QueryRow(w.Ctx,
		`SELECT postern.submit($1, 'T', '{}', uid => $2, depends_on => $3)`, q, uid, on).Scan(&got)
}

func TestWhatIsStagedWaitsForWhatItDependsOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	app := w.app(2)
	posted := w.Post("p", "T", "posted")[0]
	tx := w.Begin(app)
	// a stands behind what is staged in other queues, b behind a; in one queue, and across
	w.Must(w.submitAfter(tx, "r", "base"))
	w.Must(w.submitAfter(tx, "", "free", "base"))
	w.Must(w.submitAfter(tx, "q", "a", "base", "free", posted.String(), "posted", "base"))
	w.Must(w.submitAfter(tx, "q", "b", "a"))
	w.Must(w.submitAfter(tx, "q", "c"))
	w.Must(tx.Commit(w.Ctx))
	w.Must(w.submitAfter(app, "q", "a", "base", "free", posted.String(), "posted")) // the same, staged
	if out := w.drainAll(w.S); out != (pg.Drained{Rows: 5}) {
		t.Fatalf("drained %+v", out)
	}
	w.Must(w.submitAfter(app, "q", "a", "free", "base", "posted", posted.String())) // the same, drained
	if out := w.drainAll(w.S); out != (pg.Drained{}) {
		t.Fatalf("drained %+v", out)
	}
	_, doc := problem(t, w.submitAfter(app, "q", "a", "free", "base"))
	if fmt.Sprint(doc["code"], doc["differs"]) != "idempotency_conflict[depends_on]" {
		t.Errorf("%v", doc)
	}
	if a := w.ByUID("a"); len(a.DependsOn) != 3 {
		t.Errorf("a depends on %v", a.DependsOn)
	}
	if got := fmt.Sprint(w.uids("q")); got != "[a b c]" {
		t.Errorf("the order is %s", got)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	got := w.work(w.Node("n"))
	at := func(uid string) int { return slices.Index(got, uid) }
	if len(got) != 6 || at("base") > at("free") || at("free") > at("a") || at("posted") > at("a") ||
		at("a") > at("b") || at("b") > at("c") {
		t.Errorf("went out %v", got)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

func TestWhatIsStagedFailsWithWhatItDependsOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	app := w.app(1)
	failed := w.Post("p", "T", "failed")[0]
	_, err := w.S.Cancel(w.Ctx, w.By, failed)
	w.Must(err)
	w.Must(w.submitAfter(app, "q", "a", "failed"))
	w.Must(w.submitAfter(app, "q", "b"))
	w.Must(w.submitAfter(app, "r", "c", "a"))
	if out := w.drainAll(w.S); out != (pg.Drained{Rows: 3}) {
		t.Errorf("drained %+v", out)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	if got := fmt.Sprint(w.work(w.Node("n"))); got != "[b]" {
		t.Errorf("went out %s", got)
	}
	for _, uid := range []string{"a", "c"} {
		if x := w.ByUID(uid); x.State != outbox.FAILED || x.Code != "dependency_failed" {
			t.Errorf("%+v", x)
		}
	}
}

// A dependent whose turn has come waits for what somebody else holds a lock on, and goes with the next round;
// a drain that is between finding the places and locking them does not take it twice.
func TestTwoDrainsOfADependent(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{true, false} {
		t.Run(fmt.Sprint("commit ", commit), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Dispatcher("T", nil)
			app := w.app(1)
			first, second := w.S, w.Other().S
			w.Ingest(first, w.posted("p", "T", "posted"), w.posted("q", "T", "0"))
			w.Ingest(second, w.posted("q", "T", "1"))
			w.Must(w.submitAfter(app, "q", "a", "posted"))
			w.Must(w.submitAfter(app, "q", "b"))
			held, finish := pgworld.Hold(first, 1)
			ended := make(chan error, 1)
			go func() {
				_, err := pg.NewDrainer(first.Store).Once(w.Ctx)
				ended <- err
			}()
			select {
			case <-held:
			case err := <-ended:
				t.Fatalf("the first drain was not held: %v", err)
			}
			if out, err := pg.NewDrainer(second.Store).Once(w.Ctx); err != nil || out.Rows != 0 || !out.More {
				t.Errorf("the second drain took %+v, %v", out, err)
			}
			if commit {
				finish(nil)
				w.Must(<-ended)
			} else {
				finish(pgworld.ErrRolledBack)
				<-ended
			}
			w.drainAll(second)
			if got := fmt.Sprint(w.uids("q")); got != "[0 1 a b]" {
				t.Errorf("the order is %s", got)
			}
			pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
		})
	}
}
