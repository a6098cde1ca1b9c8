package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pgtest"
)

// agedDays is of how many days a database is that has a partition for each.
const agedDays = 250

var daily = pgtest.Common{Fill: func(t testing.TB, db *pgtest.DB) {
	const sql = `SELECT postern.ensure_days((now() AT TIME ZONE 'UTC')::date - $1::int,
		(now() AT TIME ZONE 'UTC')::date, 'day')`
	if _, err := db.Pool.Exec(context.Background(), sql, agedDays); err != nil {
		t.Fatal(err)
	}
}}

// aged is a database of a time when each day had a partition, with some rows in each.
func aged(t *testing.T, rows int) *pgtest.DB {
	t.Helper()
	db := daily.Copy(t)
	for _, sql := range []string{
		fmt.Sprintf(`INSERT INTO postern.task (queue_id, seq, day, context_id, uid, type, data, created_at)
			SELECT 1000 + i %% 7, i, (now() AT TIME ZONE 'UTC')::date - d, c.context_id, d || '.' || i, 'T',
				jsonb_build_object('i', i), now() - d * interval '1 d'
			FROM postern.context c, generate_series(1, %d) i, generate_series(1, %d) d
				WHERE c.name = 'default'`, rows, agedDays),
		`INSERT INTO postern.queue_name (queue_id, context_id, name) SELECT 1000 + i, c.context_id, 'q' || i
			FROM postern.context c, generate_series(0, 6) i WHERE c.name = 'default'`,
		`INSERT INTO postern.outcome (queue_id, seq, day, context_id, was, state, done_at)
			SELECT queue_id, seq, day, context_id, 'WAITING', 'CANCELLED', created_at FROM postern.task`,
	} {
		mustExec(t, db, sql)
	}
	return db
}

// everyRow is a digest of all rows of the tables that are divided by days.
func everyRow(t *testing.T, db *pgtest.DB) (digest string) {
	t.Helper()
	mustScan(t, db, `SELECT string_agg(md5(r), ' ' ORDER BY md5(r)) FROM (
		SELECT string_agg(t::text, E'\n' ORDER BY t::text) AS r FROM postern.task t
		UNION ALL SELECT string_agg(t::text, E'\n' ORDER BY t::text) FROM postern.outcome t) x`, &digest)
	return digest
}

// A merge says what it would do, refuses to run beside a process, can be killed and run again, loses no row, and
// leaves few partitions, which a process then reads by their names.
func TestPartitionsAreMerged(t *testing.T) {
	t.Parallel()
	db := aged(t, 20)
	env, rows := append(database(db.URL), "POSTERN_AUTH=none"), everyRow(t, db)
	var plan struct {
		Width         string
		Before, After int
		Groups        []struct{ Spans int }
	}
	dry := postern(t, env, "partitions", "merge", "--dry-run", "-o", "json")
	dry.want(t, 0)
	if err := json.Unmarshal([]byte(dry.stdout), &plan); err != nil || plan.Width != "quarter" || plan.Before < 250 ||
		plan.After > 8 || len(plan.Groups) < 3 {
		t.Errorf("the plan: %+v, %v", plan, err)
	}
	postern(t, env, "partitions", "merge", "--dry-run", "-o", "table").want(t, 0, "FIRST DAY", "there are",
		"by the width quarter they are")
	postern(t, env, "partitions", "merge", "--width", "fortnight").want(t, exitUsage,
		"want day, week, month, quarter, year")
	spans := func() (n int) {
		mustScan(t, db, `SELECT count(*)::int FROM postern.spans WHERE relation = 'task'`, &n)
		return n
	}
	if n := spans(); n != plan.Before {
		t.Errorf("the dry runs left %d of %d partitions", n, plan.Before)
	}

	p, _ := serving(t, env, "serve")
	postern(t, env, "partitions", "merge").want(t, exitBad, "stop postern serve and postern work first")
	p.signal(syscall.SIGTERM)
	p.wait()

	// A later group waits for a partition that is in use, and is killed there.
	var later string
	mustScan(t, db, `SELECT max(partition)::text FROM postern.spans
		WHERE relation = 'outcome' AND last < now()::date - 100`, &later)
	holder := hold(t, db, `SELECT FROM postern.`+later+` LIMIT 1 FOR UPDATE`)
	killed := start(t, env, "partitions", "merge", "-o", "table")
	if first := killed.line(); !strings.Contains(first, "partitions of each table are one, with") {
		t.Errorf("progress: %s", first)
	}
	killed.signal(syscall.SIGKILL)
	killed.wait()
	holder()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) { // the server notices
		var n int
		mustScan(t, db, `SELECT count(*)::int FROM pg_stat_activity
			WHERE datname = current_database() AND query LIKE '%merge_spans%' AND pid <> pg_backend_pid()`, &n)
		if n == 0 || time.Now().After(end) {
			break
		}
	}
	if n := spans(); n >= plan.Before || n <= plan.After {
		t.Errorf("a merge that was killed left %d partitions of %d, and is to make %d", n, plan.Before, plan.After)
	}
	if got := everyRow(t, db); got != rows {
		t.Errorf("a merge that was killed has changed the rows")
	}
	postern(t, env, "partitions", "merge", "-o", "table").want(t, 0, "by the width quarter they are")
	if n := spans(); n > plan.After {
		t.Errorf("%d partitions are left, want %d", n, plan.After)
	}
	if got := everyRow(t, db); got != rows {
		t.Errorf("the merge has changed rows")
	}
	postern(t, env, "partitions", "merge", "-o", "json").want(t, 0, `"groups":[]`)

	p, at := serving(t, env, "serve")
	postern(t, []string{at}, "ls", "transactions", "queue=q1", "limit=5").want(t, 0, "CANCELLED")
	if s := p.stderr(); strings.Contains(s, "ERROR") {
		t.Error(s)
	}
}

// hold keeps what a statement has locked until it is called.
func hold(t *testing.T, db *pgtest.DB, sql string) (release func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.URL)
	if err == nil {
		_, err = conn.Exec(t.Context(), "BEGIN; "+sql)
	}
	if err != nil {
		t.Fatal(err)
	}
	release = func() { conn.Close(t.Context()) }
	t.Cleanup(func() { conn.Close(context.Background()) })
	return release
}

// A start whose time is over says which part of it that was, and what took it.
func TestAStartThatTakesTooLongSaysWhatTookIt(t *testing.T) {
	t.Parallel()
	for lock, says := range map[string]string{
		`LOCK TABLE postern.context IN ACCESS EXCLUSIVE MODE`:          "read the configuration",
		`LOCK TABLE postern.goose_db_version IN ACCESS EXCLUSIVE MODE`: "read the state of the migrations",
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			hold(t, db, lock)
			postern(t, append(database(db.URL), "POSTERN_AUTH=none"), "serve").want(t, exitUnreachable, says,
				"took longer", "has locked postern.", lock)
		})
	}
}
