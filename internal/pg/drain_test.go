package pg_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// app is an application's own pool, with none of our settings.
func (w *world) app(conns int32) *pgxpool.Pool {
	w.T.Helper()
	cfg, err := pgxpool.ParseConfig(w.url())
	w.Must(err)
	cfg.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(w.Ctx, cfg)
	w.Must(err)
	w.T.Cleanup(pool.Close)
	return pool
}

func (w *world) url() string { return pgtest.URL(w.S.Pool()) }

// submit calls postern.submit with data {"uid": uid}.
func (w *world) submit(db pgworld.QueryRower, queue, typ, uid string) error {
	var got string
	err := db.QueryRow(w.Ctx, `SELECT postern.submit($1, $2, $3, uid => $4)`, queue, typ, fmt.Sprintf(`{"uid": %q}`, uid), uid).Scan(&got)
	if err == nil && got != uid {
		return fmt.Errorf("submit of %s returned %s", uid, got)
	}
	return err
}

// drainAll drains until nothing is left to find.
func (w *world) drainAll(s *stores.Store) (total pg.Drained) {
	w.T.Helper()
	d := pg.NewDrainer(s.Store)
	for more := true; more; {
		out, err := d.Once(w.Ctx)
		w.Must(err)
		w.Must(out.Failed)
		total.Rows, total.Refused, more = total.Rows+out.Rows, total.Refused+out.Refused, out.More
	}
	return total
}

// problem is what a refusal of submit says.
func problem(t *testing.T, err error) (sqlstate string, doc map[string]any) {
	t.Helper()
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		t.Fatalf("want a refusal, got %v", err)
	}
	if err := json.Unmarshal([]byte(e.Detail), &doc); err != nil {
		t.Fatalf("%s %s: DETAIL %q: %v", e.Code, e.Message, e.Detail, err)
	}
	if doc["detail"] != e.Message {
		t.Errorf("message %q, document %v", e.Message, doc)
	}
	return e.Code, doc
}

func TestWhatIsStagedGoesOutInItsOrderAndWhatIsRolledBackNeverWas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	app := w.app(2)
	tx := w.Begin(app)
	for _, uid := range []string{"a", "b", "c"} {
		w.Must(w.submit(tx, "q", "T", uid))
	}
	w.Must(w.submit(w.Begin(app), "q", "T", "never")) // rolled back at the end
	if got := w.drainAll(w.S); got.Rows != 0 {
		t.Fatalf("drained %+v of open transactions", got)
	}
	w.Must(tx.Commit(w.Ctx))
	w.Must(w.submit(w.app(1), "q", "T", "d"))
	if staged, err := w.S.Staged(w.Ctx, w.ID, "b"); err != nil || !staged.Staged || staged.Queue != "q" || string(staged.Data) != `{"uid": "b"}` {
		t.Errorf("%+v, %v", staged, err)
	}
	if got := w.drainAll(w.S); got != (pg.Drained{Rows: 4}) {
		t.Fatalf("drained %+v", got)
	}
	if b := w.ByUID("b"); b.ID.Seq != 2 || b.State != outbox.WAITING || b.Actor == "" || string(b.Data) != `{"uid": "b"}` {
		t.Errorf("%+v", b)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	if got := fmt.Sprint(w.work(w.Node("n"))); got != "[a b c d]" {
		t.Errorf("went out %s", got)
	}
	if got := w.drainAll(w.S); got.Rows != 0 {
		t.Errorf("drained %+v again", got)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

// posted is the submission that submit stages, as HTTP would post it.
func (w *world) posted(queue, typ, uid string) *pg.Submission {
	sub := w.Sub(queue, typ, uid)
	sub.Hash = sub.Fingerprint()
	return sub
}

// uids lists a queue in the order of its positions, without what has ended.
func (w *world) uids(queue string) (list []string) {
	w.T.Helper()
	rows, err := w.S.Pool().Query(w.Ctx, `SELECT uid FROM postern.tx WHERE queue = $1 AND state <> 'FAILED' ORDER BY seq`, queue)
	w.Must(err)
	list, err = pgx.CollectRows(rows, pgx.RowTo[string])
	w.Must(err)
	return list
}

func TestTwoDrainsAtOnceNeverReorderAQueue(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{true, false} {
		for _, swap := range []bool{false, true} {
			t.Run(fmt.Sprintf("commit %v swap %v", commit, swap), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.Dispatcher("T", nil)
				app := w.app(1)
				first, second := w.S, w.Other().S
				if swap {
					first, second = second, first
				}
				w.Ingest(first, w.posted("q", "T", "0"))
				w.Ingest(second, w.posted("r", "T", "0r"))
				w.Must(w.submit(app, "q", "T", "a"))
				w.Must(w.submit(app, "q", "T", "b"))
				held, finish := pgworld.Hold(first, 1)
				ended := make(chan error, 1)
				go func() {
					out, err := pg.NewDrainer(first.Store).Once(w.Ctx)
					ended <- errors.Join(err, out.Failed)
				}()
				select {
				case <-held:
				case err := <-ended:
					t.Fatalf("the first drain was not held: %v", err)
				}
				w.Must(w.submit(app, "q", "T", "c"))
				w.Must(w.submit(app, "r", "T", "d"))
				out, err := pg.NewDrainer(second.Store).Once(w.Ctx)
				if err != nil {
					t.Error(err)
				}
				if out.Rows != 1 || !out.More { // queue r is not held up
					t.Errorf("the second drain took %+v", out)
				}
				if commit {
					finish(nil)
					w.Must(<-ended)
				} else {
					finish(pgworld.ErrRolledBack)
					if err := <-ended; !errors.Is(err, pgworld.ErrRolledBack) {
						t.Error(err)
					}
				}
				w.drainAll(second)
				if got := fmt.Sprint(w.uids("q"), w.uids("r")); got != "[0 a b c] [0r d]" {
					t.Errorf("the order is %s", got)
				}
				pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
			})
		}
	}
}

func TestADrainThatIsKilledIsTakenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	app := w.app(1)
	w.Ingest(w.S, w.posted("q", "T", "0"))
	for i := range 5 {
		w.Must(w.submit(app, "q", "T", fmt.Sprint("a", i)))
	}
	dying := w.Other().S
	w.Ingest(dying, w.posted("q", "T", "1"))
	dying.HoldCommits(func(ctx context.Context, pid uint32) error {
		_, err := app.Exec(ctx, `SELECT pg_terminate_backend($1::int, 5000)`, pid)
		return err
	})
	if out, err := pg.NewDrainer(dying.Store).Once(w.Ctx); err == nil {
		t.Errorf("a killed drain says %+v", out)
	}
	w.Must(w.submit(app, "q", "T", "a5"))
	if out := w.drainAll(w.S); out != (pg.Drained{Rows: 6}) {
		t.Errorf("drained %+v", out)
	}
	if got := fmt.Sprint(w.uids("q")); got != "[0 1 a0 a1 a2 a3 a4 a5]" {
		t.Errorf("the order is %s", got)
	}
	dying.HoldCommits(nil)
	w.drainAll(dying)
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

func TestAnOpenTransactionHoldsUpNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	app := w.app(3)
	_, err := app.Exec(w.Ctx, `DO $$ BEGIN EXECUTE format('ALTER ROLE CURRENT_USER IN DATABASE %I SET lock_timeout = ''1s''', current_database()); END $$`)
	w.Must(err)
	long := w.Begin(app)
	w.Must(w.submit(long, "q", "T", "long"))
	other := w.Begin(app)
	_, err = other.Exec(w.Ctx, `SET lock_timeout = '1ms'`) // a statement that has to wait at all fails
	w.Must(err)
	w.Must(w.submit(other, "q", "T", "a"))
	w.Must(w.submit(other, "r", "T", "b"))
	w.Must(other.Commit(w.Ctx))
	impatient := w.Other()
	_, err = impatient.S.Pool().Exec(w.Ctx, `SET lock_timeout = '1ms'`)
	w.Must(err)
	if out := w.drainAll(impatient.S); out != (pg.Drained{Rows: 2}) {
		t.Errorf("drained %+v", out)
	}
	w.Ingest(impatient.S, w.posted("q", "T", "c"), w.posted("s", "T", "d"))
	n := w.Node("n")
	w.work(n)
	if w.ByUID("a").State != outbox.DONE || w.ByUID("b").State != outbox.DONE || w.ByUID("c").State != outbox.DONE {
		t.Error("something waits for a stranger's transaction")
	}
	w.Must(long.Commit(w.Ctx))
	w.drainAll(w.S)
	if got := fmt.Sprint(w.uids("q")); got != "[a c long]" {
		t.Errorf("the order is %s", got)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

func TestManyQueuesAreDrainedInRounds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	tx := w.Begin(w.app(1))
	for i := range 900 {
		queue := &[]string{fmt.Sprintf("q%03d", i%150)}[0]
		if i%10 == 0 {
			queue = nil
		}
		_, err := tx.Exec(w.Ctx, `SELECT postern.submit($1, 'T', '{}', uid => $2)`, queue, fmt.Sprintf("u%03d", i))
		w.Must(err)
	}
	w.Must(tx.Commit(w.Ctx))
	if out := w.drainAll(w.S); out != (pg.Drained{Rows: 900}) {
		t.Errorf("drained %+v", out)
	}
	var wrong, unordered int
	w.Scan(`SELECT count(*) FILTER (WHERE seq <> place AND queue IS NOT NULL), count(*) FILTER (WHERE queue IS NULL) FROM (
		SELECT seq, queue, row_number() OVER (PARTITION BY queue ORDER BY uid) AS place FROM postern.tx) t`, &wrong, &unordered)
	if wrong != 0 || unordered != 90 {
		t.Errorf("%d are not at their place, %d unordered", wrong, unordered)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

func sqlState(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}
