package app

import (
	"context"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/doctor"
	"github.com/postern-dev/postern/internal/pg/migrate"
	"github.com/postern-dev/postern/internal/pg/verify"
)

// Examine looks at the configured database: its settings, its migrations, and what in it does not move. It
// also lists the workers that are configured there. Faults: no_database, bad_setting, database_unavailable,
// two_primaries.
func Examine(ctx context.Context, cfg Config) (found []doctor.Finding, workers []doctor.Worker, err error) {
	m, err := NewMigrations(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	f := doctor.Finding{Check: "migrations", State: doctor.OK, Found: "those of this program"}
	differ := m.Check(ctx)
	if differ != nil {
		f.State, f.Found, f.Remedy = doctor.Bad, differ.Error(), "postern migrate status, then postern migrate up"
		if fault.CodeOf(differ) != "migrations_differ" {
			return nil, nil, differ
		}
	}
	found, err = doctor.Database(ctx, m.database, differ == nil)
	if err == nil && differ == nil {
		workers, err = doctor.Workers(ctx, m.database)
	}
	if err == nil && differ == nil {
		var barred []doctor.Finding
		barred, err = unreachable(ctx, m.database)
		found = append(found, barred...)
	}
	return append([]doctor.Finding{f}, found...), workers, err
}

// Violations checks on the configured database what must always be true of it, also while processes work on it: a line
// for each violation. Faults: those of Examine, migrations_differ, and two_primaries: where two servers take writes, a
// check of one of them says nothing of the other. A standby may be checked.
func Violations(ctx context.Context, cfg Config) ([]string, error) {
	database, err := cfg.Database()
	if err != nil {
		return nil, err
	}
	if err := db.OnePrimary(ctx, database); err != nil {
		return nil, err
	}
	pool, err := connect(ctx, nil, database)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	if err := migrate.Check(ctx, pool); err != nil {
		return nil, err
	}
	return verify.Violations(ctx, pool)
}
