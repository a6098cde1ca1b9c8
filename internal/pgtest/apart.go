package pgtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// Apart gives a database an installation id of its own: those of tests are copies of one. A process that works on it
// already goes on under the old one until it reads its configuration again.
func Apart(t testing.TB, db interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}) {
	t.Helper()
	for _, sql := range []string{
		`UPDATE postern.store SET lines = (random() * 9007199254740991)::bigint`,
		`DO $$
		BEGIN
			UPDATE postern.store SET installation = gen_random_uuid();
		EXCEPTION WHEN undefined_column THEN NULL;
		END $$`,
	} {
		if _, err := db.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
}
