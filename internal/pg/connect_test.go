package pg_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A server that has ended the connections of a pool, as a restart does, is found out before the next statement is
// sent, however shortly before they were used: nobody is told of a failure.
func TestConnectionsThatTheServerHasEndedAreNotUsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	var held []*pgxpool.Conn
	for range 4 {
		c, err := w.s.Pool().Acquire(w.ctx)
		w.must(err)
		held = append(held, c)
	}
	admin, err := pgx.ConnectConfig(w.ctx, w.s.Pool().Config().ConnConfig.Copy())
	w.must(err)
	defer func() { _ = admin.Close(w.ctx) }()
	for _, c := range held {
		c.Release()
	}
	var ended int
	w.must(admin.QueryRow(w.ctx, `SELECT count(*) FILTER (WHERE pg_terminate_backend(pid, 5000))
		FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`).Scan(&ended))
	if ended < len(held) {
		t.Fatalf("%d connections were ended, want %d at least", ended, len(held))
	}
	w.post("q", "T", "a")
	w.settle(w.answer(w.claim(w.node("n"), everything())[0], done()))
	holdsTrue(t, w.ctx, w.s.Pool())
}
