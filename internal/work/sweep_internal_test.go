package work

import (
	"testing"
	"time"
)

// A process that makes a day drops none the same time, so that connections do not plan anew twice within moments.
func TestADayIsDroppedAnHourAfterOneIsMade(t *testing.T) {
	t.Parallel()
	ctx, e := t.Context(), newCell(t)
	e.Retention = 48 * time.Hour
	days := func() (old, coming bool) {
		t.Helper()
		if err := e.db.Pool.QueryRow(ctx, `SELECT to_regclass('postern.task_' || to_char(clock_timestamp() AT TIME ZONE 'UTC' - interval '9 days', 'YYYYMMDD')) IS NOT NULL,
			to_regclass('postern.task_' || to_char(clock_timestamp() AT TIME ZONE 'UTC' + interval '2 days', 'YYYYMMDD')) IS NOT NULL`).Scan(&old, &coming); err != nil {
			t.Fatal(err)
		}
		return old, coming
	}
	if _, err := e.db.Pool.Exec(ctx, `SELECT postern.ensure_days(d - 9, d - 9, 'day')
		FROM (SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date AS d) n;
		DO $$ DECLARE t text; BEGIN
			FOREACH t IN ARRAY ARRAY['task', 'outcome', 'attempt', 'delivery'] LOOP
				EXECUTE format('DROP TABLE postern.%I', t || '_' || to_char(clock_timestamp() AT TIME ZONE 'UTC' + interval '2 days', 'YYYYMMDD'));
			END LOOP;
		END $$`); err != nil {
		t.Fatal(err)
	}
	for hour, want := range [][2]bool{{true, true}, {false, true}} {
		if err := e.PartitionOnce(ctx); err != nil {
			t.Fatal(err)
		}
		if old, coming := days(); [2]bool{old, coming} != want {
			t.Fatalf("after hour %d there is the old day: %t, the coming one: %t; want %t", hour, old, coming, want)
		}
	}
}
