package pgtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Stranger connects as a new role that may connect to the database and has no other right.
func (d *DB) Stranger(t testing.TB) *pgx.Conn {
	t.Helper()
	cfg := d.Pool.Config().ConnConfig.Copy()
	name := "stranger_" + cfg.Database[max(0, len(cfg.Database)-40):]
	if _, err := d.Pool.Exec(t.Context(), fmt.Sprintf(`CREATE ROLE %q LOGIN PASSWORD 'test'`, name)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := d.Pool.Exec(context.Background(), fmt.Sprintf(`DROP ROLE %q`, name)); err != nil {
			t.Error(err)
		}
	})
	cfg.User, cfg.Password = name, "test"
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	})
	return conn
}
