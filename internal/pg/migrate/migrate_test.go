package migrate_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/migrate"
	"github.com/postern-dev/postern/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var ctx = context.Background()

// up migrates and returns the lines of progress.
func up(t *testing.T, url string) []string {
	t.Helper()
	var lines []string
	if err := migrate.Up(ctx, url, func(line string) { lines = append(lines, line) }); err != nil {
		t.Fatal(err)
	}
	return lines
}

// wantDiffer checks that the database is refused with a sentence that holds part.
func wantDiffer(t *testing.T, pool *pgxpool.Pool, part string) {
	t.Helper()
	err := migrate.Check(ctx, pool)
	if fault.KindOf(err) != fault.Conflict || fault.CodeOf(err) != "migrations_differ" || !strings.Contains(err.Error(), part) {
		t.Errorf("Check says %v, want a Conflict migrations_differ with %q", err, part)
	}
}

// schemas lists what lies in the database besides what every database has.
func schemas(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	var names string
	if err := pool.QueryRow(ctx, `SELECT coalesce(string_agg(nspname, ' ' ORDER BY nspname), '') FROM pg_namespace
		WHERE nspname !~ '^pg_' AND nspname NOT IN ('information_schema', 'public')`).Scan(&names); err != nil {
		t.Fatal(err)
	}
	return names
}

func TestUpAndDownAndUpAgain(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	wantDiffer(t, db.Pool, "run `postern migrate up`")
	for range 2 {
		lines := up(t, db.URL)
		if len(lines) == 0 || !strings.HasPrefix(lines[0], "up 00001_schemas (") {
			t.Errorf("progress begins with %q", lines)
		}
		if err := migrate.Check(ctx, db.Pool); err != nil {
			t.Error(err)
		}
		if again := up(t, db.URL); len(again) != 0 {
			t.Errorf("a second up did %q, want nothing", again)
		}
		if got := schemas(t, db.Pool); got != "postern report river" {
			t.Errorf("schemas after up: %q", got)
		}
		var down []string
		if err := migrate.Down(ctx, db.URL, func(line string) { down = append(down, line) }); err != nil {
			t.Fatal(err)
		}
		if len(down) != len(lines) {
			t.Errorf("%d steps up and %d down", len(lines), len(down))
		}
		if got := schemas(t, db.Pool); got != "" {
			t.Errorf("down left the schemas %q", got)
		}
		var left int
		if err := db.Pool.QueryRow(ctx, "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace").Scan(&left); err != nil || left != 0 {
			t.Errorf("%d relations in public (%v)", left, err)
		}
	}
	if err := migrate.Down(ctx, db.URL, nil); err != nil {
		t.Errorf("down in an empty database: %v", err)
	}
}

func TestRiverFindsItsSchemaComplete(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	m, err := rivermigrate.New(riverpgxv5.New(db.Pool), &rivermigrate.Config{Schema: "river"})
	if err != nil {
		t.Fatal(err)
	}
	res, err := m.Validate(ctx, nil)
	if err != nil || !res.OK {
		t.Errorf("River says %+v (%v)", res, err)
	}
}

func TestADatabaseThatIsBehindOrAheadIsToldWhatToDo(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	if _, err := db.Pool.Exec(ctx, "INSERT INTO postern.goose_db_version (version_id, is_applied) VALUES (99999, true)"); err != nil {
		t.Fatal(err)
	}
	wantDiffer(t, db.Pool, "ahead: it has migration 99999")
	if _, err := db.Pool.Exec(ctx, "DELETE FROM postern.goose_db_version WHERE version_id IN (9, 99999)"); err != nil {
		t.Fatal(err)
	}
	wantDiffer(t, db.Pool, "missing, the first is 00009_river_job_id_autoincrement: run `postern migrate up`")
}

func TestStatusChangesNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	states, err := migrate.Status(ctx, db.URL)
	if err != nil || len(states) < 9 {
		t.Fatalf("%d states (%v)", len(states), err)
	}
	for i, s := range states {
		if s.AppliedAt != nil || s.Unknown || (i > 0 && s.Version <= states[i-1].Version) {
			t.Errorf("state %d of an empty database: %+v", i, s)
		}
	}
	if got := schemas(t, db.Pool); got != "" {
		t.Errorf("asking made the schemas %q", got)
	}
	up(t, db.URL)
	if states, err = migrate.Status(ctx, db.URL); err != nil {
		t.Fatal(err)
	}
	for _, s := range states {
		if s.AppliedAt == nil || s.Unknown {
			t.Errorf("after up: %+v", s)
		}
	}
}

func TestTwoProcessesMigrateAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := migrate.Up(ctx, db.URL, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := migrate.Check(ctx, db.Pool); err != nil {
		t.Error(err)
	}
}

func TestAFailedStepIsNamedAndWhatWasBeforeIsKept(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	if _, err := db.Pool.Exec(ctx, "CREATE SCHEMA river; CREATE TABLE river.in_the_way ()"); err != nil {
		t.Fatal(err)
	}
	err := migrate.Up(ctx, db.URL, nil)
	if err == nil || !strings.Contains(err.Error(), "00001_schemas failed, the 0 before it are kept") ||
		!strings.Contains(err.Error(), `"river" already exists`) {
		t.Fatalf("up says %v", err)
	}
	if _, err := db.Pool.Exec(ctx, "DROP SCHEMA river CASCADE"); err != nil {
		t.Fatal(err)
	}
	up(t, db.URL)
}

func TestADatabaseOfAnEarlierBuildIsRefusedWithTheWayOut(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]string{
		"another text":   "UPDATE postern.goose_db_version SET hash = 'another' WHERE version_id = 41",
		"before hashes":  "ALTER TABLE postern.goose_db_version DROP COLUMN hash",
		"one without it": "UPDATE postern.goose_db_version SET hash = NULL WHERE version_id = 41",
	} {
		db := pgtest.New(t)
		if _, err := db.Pool.Exec(ctx, before); err != nil {
			t.Fatal(err)
		}
		wantDiffer(t, db.Pool, "run `postern dev --reset`")
		err := migrate.Up(ctx, db.URL, nil)
		if fault.CodeOf(err) != "migrations_differ" || !strings.Contains(err.Error(), "has changed since: run `postern dev --reset`") {
			t.Errorf("%s: up says %v", name, err)
		}
		if strings.Count(fault.As(err).Detail, ". ") > 0 {
			t.Errorf("%s: more than one sentence: %s", name, fault.As(err).Detail)
		}
	}
}

func TestCommentsAndLayoutDoNotChangeAMigration(t *testing.T) {
	t.Parallel()
	const sql = "-- +goose Up\nCREATE TABLE t (a int); -- a table\n-- +goose Down\nDROP TABLE t;"
	for other, same := range map[string]bool{
		"-- about t\n--\n-- +goose Up\nCREATE TABLE\n  t (a int);\n\n-- +goose Down\nDROP TABLE t;\n": true,
		"-- +goose Up\nCREATE TABLE t (b int);\n-- +goose Down\nDROP TABLE t;":                        false,
		"-- +goose Up\nCREATE TABLE t (a int);\nDROP TABLE t;":                                        false,
	} {
		if (migrate.HashOf(other) == migrate.HashOf(sql)) != same {
			t.Errorf("same is not %v: %q", same, other)
		}
	}
}

func TestUpRefusesWhileOlderProcessesLive(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := db.Pool.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	all, err := migrate.Status(ctx, db.URL)
	if err != nil {
		t.Fatal(err)
	}
	newest, before := all[len(all)-1].Name, all[len(all)-2].Version
	exec(`INSERT INTO postern.node (name, version, ttl, heartbeat_at) VALUES ('old', 'v0.0.9', '1 hour', clock_timestamp())`)
	if err := migrate.Up(ctx, db.URL, nil); err != nil {
		t.Errorf("there is nothing to do, and up says %v", err)
	}
	if err := migrate.DownTo(ctx, db.URL, before); err != nil {
		t.Fatal(err)
	}
	err = migrate.Up(ctx, db.URL, nil)
	if fault.KindOf(err) != fault.Conflict || fault.CodeOf(err) != "older_processes_live" ||
		!strings.Contains(err.Error(), `node old (version "v0.0.9"), and `+newest+
			` is to be applied: stop them first`) {
		t.Errorf("up beside a live node says %v", err)
	}
	wantDiffer(t, db.Pool, "the first is "+newest)
	exec(`UPDATE postern.node SET dead_at = clock_timestamp()`)
	if lines := up(t, db.URL); len(lines) != 1 {
		t.Errorf("up beside a dead node did %q", lines)
	}
	if err := migrate.DownTo(ctx, db.URL, before); err != nil {
		t.Fatal(err)
	}
	exec(`UPDATE postern.node SET dead_at = NULL, heartbeat_at = clock_timestamp() - interval '2 hours'`)
	if lines := up(t, db.URL); len(lines) != 1 {
		t.Errorf("up beside a node that was killed long ago did %q", lines)
	}
}
