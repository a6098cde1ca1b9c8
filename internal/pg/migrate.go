package pg

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/pg/migrate"
)

// MigrationState is one migration and whether the database has it.
type MigrationState = migrate.State

// Migrate brings the database at url to the newest migration of this program, one line of progress per step; see
// migrate.Up for its outcomes.
func Migrate(ctx context.Context, url string, progress func(string)) error {
	return migrate.Up(ctx, url, progress)
}

// MigrateDown takes every migration back, and all data with them: development and tests only.
func MigrateDown(ctx context.Context, url string, progress func(string)) error {
	return migrate.Down(ctx, url, progress)
}

// MigrationStatus lists the migrations that this program knows or the database has; it changes nothing.
func MigrationStatus(ctx context.Context, url string) ([]MigrationState, error) {
	return migrate.Status(ctx, url)
}

// CheckMigrations is nil if the database and this program have the same migrations, else a Conflict with code
// migrations_differ whose sentence says what to run.
func CheckMigrations(ctx context.Context, pool *pgxpool.Pool) error {
	return migrate.Check(ctx, pool)
}
