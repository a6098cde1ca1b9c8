package app

import (
	"context"
	"time"

	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/merge"
	"github.com/postern-dev/postern/internal/pg/migrate"
)

// Migrations are those of one database that answers.
type Migrations struct{ database string }

// NewMigrations asks the configured database for a sign of life. Faults: no_database, bad_setting,
// database_unavailable.
func NewMigrations(ctx context.Context, cfg Config) (Migrations, error) {
	database, err := cfg.Database()
	if err != nil {
		return Migrations{}, err
	}
	pool, err := connect(ctx, db.NewWitness(), database)
	if err != nil {
		return Migrations{}, err
	}
	pool.Close()
	return Migrations{database}, nil
}

// Name is the database's URL without its password.
func (m Migrations) Name() string { return Masked(m.database) }

// Up applies what is missing, a line of progress per step.
func (m Migrations) Up(ctx context.Context, say func(string)) error {
	return db.Known(migrate.Up(ctx, m.database, say))
}

// Down takes everything back, and all data with it.
func (m Migrations) Down(ctx context.Context, say func(string)) error {
	return db.Known(migrate.Down(ctx, m.database, say))
}

// Status lists what this program knows and what the database has.
func (m Migrations) Status(ctx context.Context) ([]migrate.State, error) {
	all, err := migrate.Status(ctx, m.database)
	return all, db.Known(err)
}

// Merge makes few wide partitions of many narrow ones, of the width, or of the one for the retention. It tells
// done of each that is made. dry: it says what it would do. Faults: migrations_differ, processes_live.
func (m Migrations) Merge(
	ctx context.Context, width string, dry bool, done func(merge.Group, int64, time.Duration),
) (merge.Plan, error) {
	if err := m.Check(ctx); err != nil {
		return merge.Plan{}, err
	}
	if dry {
		return merge.Of(ctx, m.database, width)
	}
	return merge.Run(ctx, m.database, width, done)
}

// Check is nil if database and program agree, else a fault with code migrations_differ that says what
// to run.
func (m Migrations) Check(ctx context.Context) error {
	pool, err := connect(ctx, db.NewWitness(), m.database)
	if err != nil {
		return err
	}
	defer pool.Close()
	return db.Known(migrate.Check(ctx, pool))
}
