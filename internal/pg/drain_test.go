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
func (w *world) drainAll(s *pg.Store) (total pg.Drained) {
	w.t.Helper()
	d := pg.NewDrainer(s)
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
