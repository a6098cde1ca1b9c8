package scenario

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/pg/verify"
)

// Violations returns a line for each violated invariant of the database (none if all hold), or why they
// could not be checked. They are those of verify, which is no test support.
func Violations(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	return verify.Violations(ctx, pool)
}
