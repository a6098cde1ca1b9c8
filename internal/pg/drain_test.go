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
)

// app is an application's own pool, with none of our settings.
func (w *world) app(conns int32) *pgxpool.Pool {
	w.t.Helper()
	cfg, err := pgxpool.ParseConfig(w.url())
	w.must(err)
	cfg.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(w.ctx, cfg)
	w.must(err)
	w.t.Cleanup(pool.Close)
	return pool
}

func (w *world) url() string { return w.s.Pool().Config().ConnString() }

type queryRower interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// submit calls postern.submit with data {"uid": uid}.
func (w *world) submit(db queryRower, queue, typ, uid string) error {
	var got string
	err := db.QueryRow(w.ctx, `SELECT postern.submit($1, $2, $3, uid => $4)`, queue, typ, fmt.Sprintf(`{"uid": %q}`, uid), uid).Scan(&got)
	if err == nil && got != uid {
		return fmt.Errorf("submit of %s returned %s", uid, got)
	}
	return err
}

func (w *world) begin(db *pgxpool.Pool, o ...pgx.TxOptions) pgx.Tx {
	w.t.Helper()
	tx, err := db.BeginTx(w.ctx, append(o, pgx.TxOptions{})[0])
	w.must(err)
	w.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// drainAll drains until nothing is left to find.
func (w *world) drainAll(s *stores.Store) (total pg.Drained) {
	w.t.Helper()
	d := pg.NewDrainer(s.Store)
	for more := true; more; {
		out, err := d.Once(w.ctx)
		w.must(err)
		total.Rows, total.Refused, more = total.Rows+out.Rows, total.Refused+out.Refused, out.More
	}
	return total
}

func (w *world) byUID(uid string) *pg.Transaction {
	w.t.Helper()
	id, err := w.s.ByUID(w.ctx, w.id, uid)
	w.must(err)
	t, err := w.s.Transaction(w.ctx, w.id, id)
	w.must(err)
	return t
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
	w.dispatcher("T", nil)
	app := w.app(2)
	tx := w.begin(app)
	for _, uid := range []string{"a", "b", "c"} {
		w.must(w.submit(tx, "q", "T", uid))
	}
	w.must(w.submit(w.begin(app), "q", "T", "never")) // rolled back at the end
	if got := w.drainAll(w.s); got.Rows != 0 {
		t.Fatalf("drained %+v of open transactions", got)
	}
	w.must(tx.Commit(w.ctx))
	w.must(w.submit(w.app(1), "q", "T", "d"))
	if staged, err := w.s.Staged(w.ctx, w.id, "b"); err != nil || !staged.Staged || staged.Queue != "q" || string(staged.Data) != `{"uid": "b"}` {
		t.Errorf("%+v, %v", staged, err)
	}
	if got := w.drainAll(w.s); got != (pg.Drained{Rows: 4}) {
		t.Fatalf("drained %+v", got)
	}
	if b := w.byUID("b"); b.ID.Seq != 2 || b.State != outbox.WAITING || b.Actor == "" || string(b.Data) != `{"uid": "b"}` {
		t.Errorf("%+v", b)
	}
	holdsTrue(t, w.ctx, w.s.Pool())
	if got := fmt.Sprint(w.work(w.node("n"))); got != "[a b c d]" {
		t.Errorf("went out %s", got)
	}
	if got := w.drainAll(w.s); got.Rows != 0 {
		t.Errorf("drained %+v again", got)
	}
	holdsTrue(t, w.ctx, w.s.Pool())
}

// posted is the submission that submit stages, as HTTP would post it.
func (w *world) posted(queue, typ, uid string) *pg.Submission {
	sub := w.sub(queue, typ, uid)
	sub.Hash = sub.Fingerprint()
	return sub
}

func (w *world) ingest(s *stores.Store, subs ...*pg.Submission) []pg.Accepted {
	w.t.Helper()
	out, err := s.Ingest(w.ctx, subs, false)
	w.must(err)
	return out
}

// uids lists a queue in the order of its positions, without what has ended.
func (w *world) uids(queue string) (list []string) {
	w.t.Helper()
	rows, err := w.s.Pool().Query(w.ctx, `SELECT uid FROM postern.tx WHERE queue = $1 AND state <> 'FAILED' ORDER BY seq`, queue)
	w.must(err)
	list, err = pgx.CollectRows(rows, pgx.RowTo[string])
	w.must(err)
	return list
}

func TestTwoDrainsAtOnceNeverReorderAQueue(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{true, false} {
		for _, swap := range []bool{false, true} {
			t.Run(fmt.Sprintf("commit %v swap %v", commit, swap), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.dispatcher("T", nil)
				app := w.app(1)
				first, second := w.s, w.other().s
				if swap {
					first, second = second, first
				}
				w.ingest(first, w.posted("q", "T", "0"))
				w.ingest(second, w.posted("r", "T", "0r"))
				w.must(w.submit(app, "q", "T", "a"))
				w.must(w.submit(app, "q", "T", "b"))
				held, finish := hold(first, 1)
				ended := make(chan error, 1)
				go func() {
					_, err := pg.NewDrainer(first.Store).Once(w.ctx)
					ended <- err
				}()
				select {
				case <-held:
				case err := <-ended:
					t.Fatalf("the first drain was not held: %v", err)
				}
				w.must(w.submit(app, "q", "T", "c"))
				w.must(w.submit(app, "r", "T", "d"))
				out, err := pg.NewDrainer(second.Store).Once(w.ctx)
				if err != nil {
					t.Error(err)
				}
				if out.Rows != 1 || !out.More { // queue r is not held up
					t.Errorf("the second drain took %+v", out)
				}
				if commit {
					finish(nil)
					w.must(<-ended)
				} else {
					finish(errRolledBack)
					if err := <-ended; !errors.Is(err, errRolledBack) {
						t.Error(err)
					}
				}
				w.drainAll(second)
				if got := fmt.Sprint(w.uids("q"), w.uids("r")); got != "[0 a b c] [0r d]" {
					t.Errorf("the order is %s", got)
				}
				holdsTrue(t, w.ctx, w.s.Pool())
			})
		}
	}
}

func TestADrainThatIsKilledIsTakenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	app := w.app(1)
	w.ingest(w.s, w.posted("q", "T", "0"))
	for i := range 5 {
		w.must(w.submit(app, "q", "T", fmt.Sprint("a", i)))
	}
	dying := w.other().s
	w.ingest(dying, w.posted("q", "T", "1"))
	dying.HoldCommits(func(ctx context.Context, pid uint32) error {
		_, err := app.Exec(ctx, `SELECT pg_terminate_backend($1::int, 5000)`, pid)
		return err
	})
	if out, err := pg.NewDrainer(dying.Store).Once(w.ctx); err == nil {
		t.Errorf("a killed drain says %+v", out)
	}
	w.must(w.submit(app, "q", "T", "a5"))
	if out := w.drainAll(w.s); out != (pg.Drained{Rows: 6}) {
		t.Errorf("drained %+v", out)
	}
	if got := fmt.Sprint(w.uids("q")); got != "[0 1 a0 a1 a2 a3 a4 a5]" {
		t.Errorf("the order is %s", got)
	}
	dying.HoldCommits(nil)
	w.drainAll(dying)
	holdsTrue(t, w.ctx, w.s.Pool())
}

func TestAnOpenTransactionHoldsUpNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	app := w.app(3)
	_, err := app.Exec(w.ctx, `DO $$ BEGIN EXECUTE format('ALTER ROLE CURRENT_USER IN DATABASE %I SET lock_timeout = ''1s''', current_database()); END $$`)
	w.must(err)
	long := w.begin(app)
	w.must(w.submit(long, "q", "T", "long"))
	other := w.begin(app)
	_, err = other.Exec(w.ctx, `SET lock_timeout = '1ms'`) // whoever has to wait at all fails
	w.must(err)
	w.must(w.submit(other, "q", "T", "a"))
	w.must(w.submit(other, "r", "T", "b"))
	w.must(other.Commit(w.ctx))
	impatient := w.other()
	_, err = impatient.s.Pool().Exec(w.ctx, `SET lock_timeout = '1ms'`)
	w.must(err)
	if out := w.drainAll(impatient.s); out != (pg.Drained{Rows: 2}) {
		t.Errorf("drained %+v", out)
	}
	w.ingest(impatient.s, w.posted("q", "T", "c"), w.posted("s", "T", "d"))
	n := w.node("n")
	w.work(n)
	if w.byUID("a").State != outbox.DONE || w.byUID("b").State != outbox.DONE || w.byUID("c").State != outbox.DONE {
		t.Error("something waits for a stranger's transaction")
	}
	w.must(long.Commit(w.ctx))
	w.drainAll(w.s)
	if got := fmt.Sprint(w.uids("q")); got != "[a c long]" {
		t.Errorf("the order is %s", got)
	}
	holdsTrue(t, w.ctx, w.s.Pool())
}

func TestManyQueuesAreDrainedInRounds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	tx := w.begin(w.app(1))
	for i := range 900 {
		queue := &[]string{fmt.Sprintf("q%03d", i%150)}[0]
		if i%10 == 0 {
			queue = nil
		}
		_, err := tx.Exec(w.ctx, `SELECT postern.submit($1, 'T', '{}', uid => $2)`, queue, fmt.Sprintf("u%03d", i))
		w.must(err)
	}
	w.must(tx.Commit(w.ctx))
	if out := w.drainAll(w.s); out != (pg.Drained{Rows: 900}) {
		t.Errorf("drained %+v", out)
	}
	var wrong, unordered int
	w.scan(`SELECT count(*) FILTER (WHERE seq <> place AND queue IS NOT NULL), count(*) FILTER (WHERE queue IS NULL) FROM (
		SELECT seq, queue, row_number() OVER (PARTITION BY queue ORDER BY uid) AS place FROM postern.tx) t`, &wrong, &unordered)
	if wrong != 0 || unordered != 90 {
		t.Errorf("%d are not at their place, %d unordered", wrong, unordered)
	}
	holdsTrue(t, w.ctx, w.s.Pool())
}

func sqlState(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}
