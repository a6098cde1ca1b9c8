package deliveries_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
)

// fetch calls postern.feed and returns its cursors and what it said.
func fetch(t *testing.T, w *world, db pgx.Tx, max int) (cursors, said []string) {
	t.Helper()
	rows, err := db.Query(w.Ctx, `SELECT f.cursor, f.event || ' ' || f.uid || ' ' || (f.transaction_id = t.id)::text || ' ' || (f.body->>'state')
		FROM postern.feed('s', $1) f LEFT JOIN postern.tx t ON t.uid = f.uid`, max)
	w.Must(err)
	var cursor, line string
	_, err = pgx.ForEachRow(rows, []any{&cursor, &line}, func() error {
		cursors, said = append(cursors, cursor), append(said, line)
		return nil
	})
	w.Must(err)
	return cursors, said
}

func TestAConsumerInTheDatabaseCommitsEffectAndCheckpointTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	s := w.Subscribe(outbox.Subscription{Name: "s", Kind: "pull"})
	w.Post("q", "T", "a", "b", "c")
	w.Number(w.S, s.ID)
	begin := func() pgx.Tx {
		t.Helper()
		tx, err := w.S.Pool().Begin(w.Ctx)
		w.Must(err)
		return tx
	}
	_, err := w.S.Pool().Exec(w.Ctx, `CREATE TABLE public.mine (uid text PRIMARY KEY)`)
	w.Must(err)

	// one fetches and is slow: another one gets nothing, and numbering goes on
	one, two := begin(), begin()
	cursors, said := fetch(t, w, one, 2)
	w.Same(said, "transaction.accepted a true WAITING", "transaction.accepted b true WAITING")
	if _, said := fetch(t, w, two, 2); len(said) != 0 {
		t.Errorf("two consumers at once: %v", said)
	}
	w.Must(two.Rollback(w.Ctx))
	w.Post("q", "T", "d")
	w.Number(w.S, s.ID)
	_, err = one.Exec(w.Ctx, `INSERT INTO public.mine SELECT unnest($1::text[])`, []string{"a", "b"})
	w.Must(err)
	_, err = one.Exec(w.Ctx, `SELECT postern.ack('s', $1)`, cursors[1])
	w.Must(err)
	w.Must(one.Rollback(w.Ctx)) // neither effect nor checkpoint
	one = begin()
	if cursors, said = fetch(t, w, one, 2); len(said) != 2 || !strings.Contains(said[0], " a ") {
		t.Fatalf("what was rolled back does not come again: %v", said)
	}
	_, err = one.Exec(w.Ctx, `INSERT INTO public.mine SELECT unnest($1::text[])`, []string{"a", "b"})
	w.Must(err)
	_, err = one.Exec(w.Ctx, `SELECT postern.ack('s', $1)`, cursors[1])
	w.Must(err)
	if _, said := fetch(t, w, one, 10); len(said) != 2 {
		t.Errorf("after the ack: %v", said)
	}
	w.Must(one.Commit(w.Ctx))
	two = begin()
	if _, said = fetch(t, w, two, 10); len(said) != 2 || !strings.Contains(said[0], " c ") || !strings.Contains(said[1], " d ") {
		t.Errorf("after the commit: %v", said)
	}
	w.Must(two.Rollback(w.Ctx))

	refused := func(state, text, sql string, args ...any) {
		t.Helper()
		_, err := w.S.Pool().Exec(w.Ctx, sql, args...)
		if err == nil || !strings.Contains(err.Error(), "SQLSTATE "+state) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, want %s and %q", sql, err, state, text)
		}
	}
	refused("ZP404", "no subscription", `SELECT * FROM postern.feed('none', 1)`)
	refused("ZP404", "no subscription", `SELECT * FROM postern.feed('s', 1, 'system')`)
	refused("ZP422", "none of ours", `SELECT postern.ack('s', 'x')`)
	refused("ZP422", "ahead", `SELECT postern.ack('s', $1)`, fmt.Sprintf("c%d-%d", s.ID, int64(1)<<58))
	refused("ZP404", "another subscription", `SELECT postern.ack('s', 'c999-1')`)
	w.Subscribe(outbox.Subscription{Name: "hook", Kind: "webhook"})
	refused("ZP409", "kind webhook", `SELECT * FROM postern.feed('hook', 1)`)
	var dropped int64 // the third, as retention drops it
	w.Must(w.S.Pool().QueryRow(w.Ctx, `WITH gone AS (DELETE FROM postern.delivery WHERE cursor = (SELECT cursor FROM postern.delivery WHERE subscription_id = $1 ORDER BY cursor LIMIT 1 OFFSET 2)
			RETURNING cursor)
		UPDATE postern.subscription s SET dropped = g.cursor FROM gone g WHERE s.subscription_id = $1 RETURNING s.dropped`, s.ID).Scan(&dropped))
	refused("ZP404", fmt.Sprintf("acknowledge c%d-%d", s.ID, dropped), `SELECT * FROM postern.feed('s', 10)`)
}
