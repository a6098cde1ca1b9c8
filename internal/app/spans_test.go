package app_test

import (
	"log/slog"
	"testing"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/pgtest"
)

// aloneWith starts a process with settings on a database, and ends it.
func aloneWith(t *testing.T, db *pgtest.DB, role app.Role, settings map[string]string) {
	t.Helper()
	settings["DATABASE_URL"], settings["POSTERN_LISTEN"] = db.URL, "127.0.0.1:0"
	c, _, err := app.Load(app.Layers{Environ: settings, Defaults: app.DevDefaults})
	if err != nil {
		t.Fatal(err)
	}
	a, err := app.New(t.Context(), c, role, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	a.Close()
}

// A process that starts where the days have run out makes spans as wide as its own retention asks for, not as that of
// the process before it. One that drops nothing goes by what is stored.
func TestSpansAtTheStartGoByTheRetentionOfTheProcess(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		role   app.Role
		stored any
		keep   string
		days   int // of the span that holds the day after tomorrow, at most
		least  int
	}{
		"from ever to 20 days":    {app.Role{Work: true}, nil, "20", 1, 1},
		"from 20 days to ever":    {app.Role{Work: true}, 20, "keep", 92, 2},
		"serve has no say in it":  {app.Role{Serve: true}, 20, "keep", 1, 1},
		"as before, a week of it": {app.Role{Serve: true, Work: true}, 100, "100", 7, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			exec(t, db, `UPDATE postern.retained SET keep = $1`, c.stored)
			exec(t, db, `DO $$DECLARE s record; BEGIN
				FOR s IN SELECT partition FROM postern.spans LOOP
					EXECUTE format('DROP TABLE postern.%I', s.partition);
				END LOOP; END$$`)
			aloneWith(t, db, c.role, map[string]string{"POSTERN_RETENTION": c.keep})
			var days, spans int
			err := db.Pool.QueryRow(t.Context(), `SELECT max(last - first + 1), count(*)
				FROM postern.spans WHERE relation = 'task'`).Scan(&days, &spans)
			if err != nil || days > c.days || days < c.least || spans == 0 {
				t.Errorf("the widest of %d spans has %d days, want %d to %d; %v", spans, days, c.least, c.days, err)
			}
		})
	}
}

// The partitions _old reach up to retained.since, also where that is later than yesterday: a clock that was ahead has
// dropped the days between.
func TestAProcessStartsWhereRetentionIsAheadOfToday(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, parent := range []string{"task", "outcome", "attempt", "delivery"} {
		exec(t, db, `DO $$DECLARE s record; BEGIN
			FOR s IN SELECT partition FROM postern.spans WHERE relation = '`+parent+`' LOOP
				EXECUTE format('DROP TABLE postern.%I', s.partition);
			END LOOP;
			CREATE TABLE postern.`+parent+`_old (LIKE postern.`+parent+` INCLUDING ALL);
			EXECUTE format('ALTER TABLE postern.`+parent+` ATTACH PARTITION postern.`+parent+`_old
				FOR VALUES FROM (MINVALUE) TO (%L)', (now() AT TIME ZONE 'UTC')::date + 2);
			END$$`)
	}
	exec(t, db, `UPDATE postern.retained SET since = (now() AT TIME ZONE 'UTC')::date + 2`)
	aloneWith(t, db, app.Role{Serve: true, Work: true}, map[string]string{})
	var first int
	err := db.Pool.QueryRow(t.Context(), `SELECT min(first) - (now() AT TIME ZONE 'UTC')::date
		FROM postern.spans WHERE relation = 'task'`).Scan(&first)
	if err != nil || first != 2 {
		t.Errorf("the first span begins %d days ahead, want 2; %v", first, err)
	}
}

func exec(t *testing.T, db *pgtest.DB, sql string, args ...any) {
	t.Helper()
	if _, err := db.Pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}
