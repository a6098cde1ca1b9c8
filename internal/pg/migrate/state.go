package migrate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/session"
	"github.com/postern-dev/postern/migrations"
)

// State is one migration and whether the database has it.
type State struct {
	Version   int64      `json:"version"`
	Name      string     `json:"name"`       // like 00001_schemas; River's are 00002_river_create_river_migration and so on
	AppliedAt *time.Time `json:"applied_at"` // nil: not applied
	Unknown   bool       `json:"unknown"`    // the database has it, this program has not

	hash string // of what it said when it was applied
}

// Status lists what this program knows and what the database has, by number. It changes nothing, also in a
// database that has never seen a migration.
func Status(ctx context.Context, url string) (_ []State, err error) {
	defer fault.Wrap(&err, "read the state of the migrations")
	conn, err := session.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	return states(ctx, conn)
}

// differ is the code of all faults about a database whose migrations are not those of this program.
const differ = "migrations_differ"

// unchanged is nil if every migration that the database has said the same when it was applied. Before the first release
// migrations change in place, and what an earlier build of them made cannot be brought forward.
func unchanged(all []State) error {
	for _, s := range all {
		if s.changed() {
			return fault.New(fault.Conflict, differ, "an earlier build made this database, and %s has changed since: "+
				"run `postern dev --reset`, which throws away what dev keeps (in a database of your own, drop its schemas "+
				"postern, report and river)", s.Name)
		}
	}
	return nil
}

// Check compares the database with this program. nil: they are the same. A Conflict with code migrations_differ: the
// database is empty, behind, ahead or of an earlier build, and the sentence says what to run. Any other error: it could
// not be asked.
func Check(ctx context.Context, pool *pgxpool.Pool) error {
	all, err := states(ctx, pool)
	if err != nil {
		return fmt.Errorf("read the state of the migrations: %w", err)
	}
	if err := unchanged(all); err != nil {
		return err
	}
	var applied int
	var missing, unknown []string
	for _, s := range all {
		switch {
		case s.Unknown:
			unknown = append(unknown, s.Name)
		case s.AppliedAt == nil:
			missing = append(missing, s.Name)
		default:
			applied++
		}
	}
	switch {
	case applied == 0 && len(unknown) == 0:
		return fault.New(fault.Conflict, differ, "the database has none of our %d migrations: run `postern migrate up`", len(missing))
	case len(unknown) > 0:
		return fault.New(fault.Conflict, differ,
			"the database is ahead: it has migration %s, which this program does not know: run a program as new as the database", unknown[0])
	case len(missing) > 0:
		return fault.New(fault.Conflict, differ,
			"the database is behind: %d of %d migrations are missing, the first is %s: run `postern migrate up`", len(missing), len(all), missing[0])
	}
	return nil
}

// Lacks is nil if the database has every migration of this program, whatever else it has; else as Check.
func Lacks(ctx context.Context, pool *pgxpool.Pool) error {
	all, err := states(ctx, pool)
	if err != nil {
		return fmt.Errorf("read the state of the migrations: %w", err)
	}
	if slices.ContainsFunc(all, func(s State) bool { return s.AppliedAt == nil }) {
		return Check(ctx, pool)
	}
	return nil
}

// asker is what a connection and a pool have in common.
type asker interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// states reads goose's table, if it is there, and lays it beside the migrations of this program.
func states(ctx context.Context, db asker) ([]State, error) {
	var found bool
	if err := db.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", versionTable).Scan(&found); err != nil {
		return nil, err
	}
	all := map[int64]State{}
	for version, name := range names() {
		all[version] = State{Version: version, Name: name}
	}
	if found {
		rows, err := db.Query(ctx, `SELECT v.version_id, max(v.tstamp), coalesce(max(to_jsonb(v) ->> 'hash'), '')
			FROM `+versionTable+` v
			WHERE v.is_applied AND v.version_id > 0
			GROUP BY v.version_id`) // by way of JSON, since the table of an earlier build has no such column
		if err != nil {
			return nil, err
		}
		var version int64
		var at time.Time
		var hash string
		if _, err := pgx.ForEachRow(rows, []any{&version, &at, &hash}, func() error {
			s, known := all[version]
			applied := at
			s.hash = hash
			s.Version, s.Name, s.AppliedAt, s.Unknown = version, nameOf(version), &applied, !known
			all[version] = s
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b State) int { return int(a.Version - b.Version) }), nil
}

// nameOf is the name of a version in sentences; a version that we do not know is its bare number.
func nameOf(version int64) string {
	if name, ok := names()[version]; ok {
		return name
	}
	return fmt.Sprintf("%05d", version)
}

// names holds every migration of this program. It panics on a file name without a number, which no build
// that was ever tested can have.
var names = sync.OnceValue(func() map[int64]string {
	all := map[int64]string{}
	files, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil {
		panic(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(path.Base(file), ".sql")
		number, _, _ := strings.Cut(name, "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			panic("migrations/" + file + " does not begin with a number: " + err.Error())
		}
		all[version] = name
	}
	m, err := riverMigrator()
	if err != nil {
		panic(err)
	}
	for _, v := range m.AllVersions() {
		number := riverNumbers[v.Version]
		name := strings.TrimPrefix(strings.ReplaceAll(v.Name, " ", "_"), "river_")
		all[number] = fmt.Sprintf("%05d_river_%s", number, name)
	}
	return all
})

// eachFile gives the files of our own migrations to fn, in their order.
func eachFile(fn func(file string, body []byte)) {
	files, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil {
		panic(err)
	}
	for _, file := range files {
		body, err := migrations.FS.ReadFile(file)
		if err != nil {
			panic(err)
		}
		fn(file, body)
	}
}

// Hash names the schema that Up makes: it differs whenever a migration, River's included, does.
var Hash = sync.OnceValue(func() string {
	sum := sha256.New()
	eachFile(func(file string, body []byte) { fmt.Fprintf(sum, "%s %d\n%s", file, len(body), body) })
	m, err := riverMigrator()
	if err != nil {
		panic(err)
	}
	for _, v := range m.AllVersions() {
		fmt.Fprintf(sum, "river %d\n%s", v.Version, v.SQLUp)
	}
	return hex.EncodeToString(sum.Sum(nil))
})
