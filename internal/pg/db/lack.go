package db

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
)

// A statement may lack two things that are no fault of its caller: the partition of a day, which is made then, and a
// grant, which an administrator has to give. Readiness tells of both, too (lacks).

// Where PostgreSQL names a day: in the detail of a row that has no partition, and in the name of a partition.
var (
	dayOfRow       = regexp.MustCompile(`\(day\) = \((\d{4}-\d{2}-\d{2})\)`)
	dayOfPartition = regexp.MustCompile(`\bpostern\.([a-z]+)_(\d{8})(_\d{8})?\b`)
)

// dayMissing says whether err is that a day has no partition, and which one; the zero time where PostgreSQL did not
// say.
func dayMissing(err error) (day time.Time, missing bool) {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return day, false
	}
	layout, found := time.DateOnly, []string(nil)
	switch {
	case e.Code == "23514" && e.ConstraintName == "" && keys[e.TableName] != "":
		found, missing = dayOfRow.FindStringSubmatch(e.Detail), true
	case e.Code == "42P01":
		layout = dayLayout
		if of := dayOfPartition.FindStringSubmatch(e.Message); of != nil && keys[of[1]] != "" {
			found, missing = of[1:3], true
		}
	}
	if found != nil {
		day, _ = time.Parse(layout, found[1])
	}
	return day, missing
}

// makeDay makes the partitions of a day that was found missing, and those of the coming days.
func (db *DB) makeDay(ctx context.Context, day time.Time) error {
	if !day.IsZero() {
		var n int
		if err := db.pool.QueryRow(ctx, `SELECT postern.ensure_days($1::date, $1::date)`, day).Scan(&n); err != nil {
			return cmp.Or(Lacking(db.Role(), err), Known(err))
		}
	}
	_, err := db.EnsureDays(ctx)
	return err
}

// Lacking is the fault of an error that tells of such a lack, nil for others. It is no fault of the request, which may
// succeed once it is there. role is that of the session, "" where it is not known.
func Lacking(role string, err error) error {
	var e *pgconn.PgError
	if day, missing := dayMissing(err); missing {
		of := "that day"
		if !day.IsZero() {
			of = day.Format(time.DateOnly)
		}
		return fault.New(fault.Retry, "database_unavailable",
			"the partitions of %s are missing or detached: SELECT postern.ensure_days(date, date) makes what is missing", of).After(time.Second).Because(err)
	}
	if errors.As(err, &e) && e.Code == "42501" {
		who := "the role of this process"
		if role != "" {
			who = fmt.Sprintf("the role %q", role)
		}
		return fault.New(fault.Retry, "database_unavailable", "%s lacks a grant: %s. %s", who, e.Message, regrant).
			After(time.Second).Because(err)
	}
	return nil
}

// regrant is what helps where a grant is missing.
const regrant = "As the owner of the schema, SELECT postern.make_roles() gives the role postern_app what it needs, and GRANT postern_app TO the role of the process"

// Role is that under which this process connects.
func (db *DB) Role() string { return db.pool.Config().ConnConfig.User }

// lacksSQL lists what the role of the session may not do, of what the service does, and which partitions of a day are
// missing. Partitions of other days have the grants of this one. $1 is the day, $2 the tables that are divided by days.
const lacksSQL = `WITH today AS MATERIALIZED (SELECT s.relation, s.oid FROM postern.spans s
		WHERE $1::date BETWEEN s.first AND s.last)
	SELECT 'may not ' || p.privilege || ' on ' || c.oid::regclass FROM pg_class c
		CROSS JOIN LATERAL unnest(CASE c.relkind WHEN 'S' THEN '{USAGE}'::text[] ELSE '{SELECT,INSERT,UPDATE,DELETE}' END) p(privilege)
		WHERE c.relnamespace IN ('postern'::regnamespace, 'river'::regnamespace) AND c.relkind IN ('r', 'p', 'S')
			AND (NOT c.relispartition OR c.oid IN (SELECT t.oid FROM today t))
			AND NOT CASE c.relkind WHEN 'S' THEN has_sequence_privilege(c.oid, p.privilege) ELSE has_table_privilege(c.oid, p.privilege) END
	UNION ALL SELECT 'may not EXECUTE ' || f.oid::regprocedure FROM pg_proc f
		WHERE f.oid = 'postern.ensure_days(date, date, text)'::regprocedure
			AND NOT has_function_privilege(f.oid, 'EXECUTE')
	UNION ALL SELECT 'finds no partition of postern.' || t || ' for ' || to_char($1::date, 'YYYY-MM-DD')
		FROM unnest($2::text[]) t
		WHERE NOT EXISTS (SELECT FROM today d WHERE d.relation = t)
	ORDER BY 1 LIMIT 5`

// Lacks says what this process needs of the database and does not have, after it has tried to make what it may make; ""
// for nothing.
func (db *DB) Lacks(ctx context.Context) (string, error) {
	now, err := db.Now(ctx)
	if err != nil {
		return "", err
	}
	day := outbox.DayOf(now).Time()
	list, err := db.listLacks(ctx, day)
	if err != nil || len(list) == 0 {
		return "", err
	}
	if err := db.makeDay(ctx, day); err == nil {
		if list, err = db.listLacks(ctx, day); err != nil || len(list) == 0 {
			return "", err
		}
	}
	return fmt.Sprintf("the role %q %s. %s", db.Role(), strings.Join(list, ", "), regrant), nil
}

func (db *DB) listLacks(ctx context.Context, day time.Time) ([]string, error) {
	rows, err := db.pool.Query(ctx, lacksSQL, day, daily())
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// lack is an error of a run that lacks something: Mend makes or reads it, and the run begins again.
type lack interface {
	error
	// Mend makes what is lacking.
	Mend(context.Context) error
	// Elsewhere says that Mend takes a connection of its own, or long: a commit that several calls share, and that
	// holds locks, is given up before.
	Elsewhere() bool
}
