package migrate_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/pg/migrate"
	"github.com/postern-dev/postern/internal/pgtest"
)

// A database whose days have a partition each keeps these, with their rows and ids. New ones are
// wide, and each partition is dropped by its own last day.
func TestADatabaseOfDaysGoesOnWithSpans(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	if err := migrate.UpTo(ctx, db.URL, 46); err != nil {
		t.Fatal(err)
	}
	exec := func(sql string) {
		t.Helper()
		if _, err := db.Pool.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	is := func(want, sql string) {
		t.Helper()
		var got string
		if err := db.Pool.QueryRow(ctx, sql).Scan(&got); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", sql, got, err, want)
		}
	}
	exec(`SELECT postern.ensure_days((now() AT TIME ZONE 'UTC')::date - 20, (now() AT TIME ZONE 'UTC')::date + 3)`)
	exec(`INSERT INTO postern.task (queue_id, seq, day, context_id, uid, type, data, created_at)
		SELECT 1000, 20 - d, (now() AT TIME ZONE 'UTC')::date - d, c.context_id, 'u' || d, 'T', '{}',
			now() - d * interval '1 d'
		FROM postern.context c, generate_series(0, 19) d
		WHERE c.name = 'default'`)
	exec(`INSERT INTO postern.outcome (queue_id, seq, day, context_id, was, state, done_at)
		SELECT queue_id, seq, day, context_id, 'WAITING', 'CANCELLED', created_at FROM postern.task`)
	exec(`INSERT INTO postern.idempotency (context_id, key, queue_id, seq, day, body_hash)
		SELECT context_id, uid, queue_id, seq, day, '' FROM postern.task`)
	if err := migrate.Up(ctx, db.URL, nil); err != nil {
		t.Fatal(err)
	}
	is("24 1", `SELECT count(*) || ' ' || max(last - first + 1) FROM postern.spans WHERE relation = 'task'`)
	is("20", `SELECT count(*)::text FROM postern.task t JOIN postern.idempotency i USING (queue_id, seq, day)
		WHERE i.salt = postern.salt(t.created_at, t.moved_from)`)
	exec(`SELECT postern.ensure_days((now() AT TIME ZONE 'UTC')::date, (now() AT TIME ZONE 'UTC')::date + 100)`)
	is("true", `SELECT (count(*) BETWEEN 25 AND 27
		AND bool_and(last > first) FILTER (WHERE first > (now() AT TIME ZONE 'UTC')::date + 3))::text
		FROM postern.spans WHERE relation = 'task'`)
	is("", `SELECT coalesce(postern.drop_day(s.first, s.last, now() - interval '10 d', '{}', '{}'), '')
		FROM postern.spans s WHERE s.relation = 'task' ORDER BY s.first LIMIT 1`)
	is("23 20", `SELECT (SELECT count(*) FROM postern.spans
		WHERE relation = 'outcome' AND first = last) || ' ' || (SELECT count(*) FROM postern.task)`)
	is("true", `SELECT (r.since = (SELECT min(s.first) FROM postern.spans s))::text FROM postern.retained r`)
}
