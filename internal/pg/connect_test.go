package pg_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// A server ends the connections of a pool, as a restart does. The pool finds that out before the next statement is
// sent, however shortly before they were used, so that no caller is told of a failure.
func TestConnectionsThatTheServerHasEndedAreNotUsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	var held []*pgxpool.Conn
	for range 4 {
		c, err := w.S.Pool().Acquire(w.Ctx)
		w.Must(err)
		held = append(held, c)
	}
	admin, err := pgx.ConnectConfig(w.Ctx, w.S.Pool().Config().ConnConfig.Copy())
	w.Must(err)
	defer func() { _ = admin.Close(w.Ctx) }()
	for _, c := range held {
		c.Release()
	}
	var ended int
	w.Must(admin.QueryRow(w.Ctx, `SELECT count(*) FILTER (WHERE pg_terminate_backend(pid, 5000))
		FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`).Scan(&ended))
	if ended < len(held) {
		t.Fatalf("%d connections were ended, want %d at least", ended, len(held))
	}
	w.Post("q", "T", "a")
	w.Settle(w.Answer(w.Claim(w.Node("n"), pgworld.Everything())[0], pgworld.Done()))
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}
