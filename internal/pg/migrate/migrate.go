// Package migrate brings a database to the newest migration and tells how far it is. It is a part of internal/pg that
// sits apart, so that internal/pgtest can make databases without importing the store, whose tests import pgtest.
package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/session"
	"github.com/postern-dev/postern/internal/pg/watch"
	"github.com/postern-dev/postern/migrations"
)

// The runner's own tables lie in our schema, so that a database holds nothing of ours outside postern and river.
const (
	versionTable = "postern.goose_db_version"
	lockTable    = "postern.goose_lock"
)

// Up brings the database at url to the newest migration of this program and tells progress one line per step
// (nil: silence). Outcomes: nil, also when there was nothing to do; an error that names the step, and everything
// before that step is kept; or an error because another process held the lock for five minutes. Several processes may
// call it at once: one migrates, the others wait. It must run as a role that may create schemas in the database.
//
// Conflict migrations_differ: an earlier build made the database. Conflict older_processes_live: a migration is missing
// while a process dispatches by the migrations of before. Conflict read_only: the database can only be read.
func Up(ctx context.Context, url string, progress func(string)) (err error) {
	defer fault.Wrap(&err, "migrate up")
	if err := mayGoUp(ctx, url); err != nil {
		return err
	}
	db, p, err := open(url, progress)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := makeSchema(ctx, db); err != nil {
		return err
	}
	_, err = p.Up(ctx)
	return firstError(err)
}

// mayGoUp refuses a database that Up cannot bring forward, or must not change yet. A process refuses at its start a
// database that lacks one of its migrations. So a process that lives while one is missing is an older one, and its
// statements may not fit the tables that Up makes. A process that starts between this look and the first step is not
// seen.
func mayGoUp(ctx context.Context, url string) error {
	conn, err := session.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	all, err := states(ctx, conn)
	if err != nil {
		return err
	}
	if err := unchanged(all); err != nil {
		return err
	}
	missing := slices.IndexFunc(all, func(s State) bool { return s.AppliedAt == nil })
	if missing >= 0 {
		if err := session.Writable(ctx, conn); err != nil {
			return err
		}
	}
	var found bool
	if err := conn.QueryRow(ctx, "SELECT to_regclass('postern.node') IS NOT NULL").Scan(&found); err != nil ||
		missing < 0 || !found {
		return err
	}
	var n int
	var name, version string
	var wait float64
	err = conn.QueryRow(ctx, `SELECT count(*) OVER (), n.name, n.version,
			extract(epoch FROM max(n.heartbeat_at + n.ttl) OVER () - clock_timestamp())::float8
		FROM postern.node n
		WHERE n.dead_at IS NULL AND n.heartbeat_at + n.ttl > clock_timestamp()
		ORDER BY n.started_at LIMIT 1`).Scan(&n, &name, &version, &wait)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return fault.New(fault.Conflict, "older_processes_live",
		"the migrations of before are in use by %s, one is node %s "+
			"(version %q), and %s is to be applied: stop them first (`postern work`, `postern dev`); one that was killed counts for "+
			"another %.0f s", fault.Many(n, "process"), name, version, all[missing].Name, math.Ceil(wait))
}

func writable(ctx context.Context, url string) error {
	conn, err := session.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return session.Writable(ctx, conn)
}

// Down takes every migration back and drops our schemas with everything in them. It is for development and
// tests: all transactions and their history are gone. A database without our schema is left as it is.
func Down(ctx context.Context, url string, progress func(string)) (err error) {
	defer fault.Wrap(&err, "migrate down")
	db, p, err := open(url, progress)
	if err != nil {
		return err
	}
	defer db.Close()
	if found, err := hasSchema(ctx, db); err != nil || !found {
		return err
	}
	if err := writable(ctx, url); err != nil {
		return err
	}
	if _, err := p.DownTo(ctx, 0); err != nil {
		return firstError(err)
	}
	// Without CASCADE: an object that a migration forgot to take back is an error here, not silently gone.
	_, err = db.ExecContext(ctx, "DROP TABLE "+versionTable+"; DROP TABLE "+lockTable+"; DROP SCHEMA postern")
	return err
}

// open returns goose's provider over the SQL files and River's migrations, and the database handle that it
// uses. The caller closes the handle.
func open(url string, progress func(string)) (*sql.DB, *goose.Provider, error) {
	said, err := session.Parse(url)
	if err != nil {
		return nil, nil, err
	}
	said.Unlimited() // a step may take as long as it likes
	said.Settle()
	cfg := said.ConnConfig
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec // no prepared statements: also works behind a pooler
	river, err := riverMigrations()
	if err != nil {
		return nil, nil, err
	}
	store, err := database.NewStore(goose.DialectPostgres, versionTable)
	if err != nil {
		return nil, nil, err
	}
	// A table, because session advisory locks are lost behind poolers and do not exist everywhere.
	locker, err := lock.NewPostgresTableLocker(lock.WithTableName(lockTable),
		lock.WithTableLockTimeout(500*time.Millisecond, 600),
		lock.WithTableLogger(slog.New(slog.DiscardHandler)),
		lock.WithTableRetryPolicy(waits(progress)))
	if err != nil {
		return nil, nil, err
	}
	opts := []goose.ProviderOption{goose.WithStore(recorder{store}), goose.WithLocker(locker),
		goose.WithGoMigrations(river...), goose.WithDisableGlobalRegistry(true)}
	if progress != nil {
		opts = append(opts, goose.WithVerbose(true), goose.WithSlog(slog.New(progressHandler{progress})))
	}
	watch.Configure(cfg)
	db := stdlib.OpenDB(*cfg)
	p, err := goose.NewProvider(goose.DialectCustom, db, migrations.FS, opts...)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, p, nil
}

// waits says whether the lock is asked for again: it is while another process has it, which is told once. Any
// other error ends the command. The locker tells them apart by their texts alone.
func waits(progress func(string)) func(error) bool {
	told := false
	return func(err error) bool {
		if !strings.Contains(err.Error(), "already held") {
			return false
		}
		if !told && progress != nil {
			progress("waiting: another process migrates this database; where it was killed, its lock ends after 30 s")
		}
		told = true
		return true
	}
}

// hasSchema tells whether the schema postern exists.
func hasSchema(ctx context.Context, db *sql.DB) (found bool, err error) {
	err = db.QueryRowContext(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'postern')").Scan(&found)
	return found, err
}

// makeSchema makes the schema postern if it is missing. It looks first, because IF NOT EXISTS asks for the right to
// create even where nothing is to be created.
func makeSchema(ctx context.Context, db *sql.DB) error {
	if found, err := hasSchema(ctx, db); err != nil || found {
		return err
	}
	_, err := db.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS postern")
	var pe *pgconn.PgError
	if errors.As(err, &pe) && pe.Code == "23505" {
		return nil // made by another process in the same moment
	}
	return err
}

// firstError turns goose's report of a partial run into a sentence that names the step that failed.
func firstError(err error) error {
	var partial *goose.PartialError
	if errors.As(err, &partial) && partial.Failed != nil {
		return fmt.Errorf("%s failed, the %d before it are kept: %w",
			nameOf(partial.Failed.Source.Version), len(partial.Applied), partial.Err)
	}
	return err
}

// progressHandler turns goose's log records into lines like "up 00001_schemas (3ms)".
type progressHandler struct{ line func(string) }

func (progressHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h progressHandler) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h progressHandler) WithGroup(string) slog.Handler          { return h }
func (h progressHandler) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "migration completed" {
		return nil
	}
	var version int64
	var direction string
	var took time.Duration
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "version":
			version = a.Value.Int64()
		case "direction":
			direction = a.Value.String()
		case "duration_seconds":
			took = time.Duration(a.Value.Float64() * float64(time.Second))
		}
		return true
	})
	h.line(fmt.Sprintf("%s %s (%s)", direction, nameOf(version), took.Round(time.Millisecond)))
	return nil
}
