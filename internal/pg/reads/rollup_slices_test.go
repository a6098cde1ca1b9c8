package reads_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	pgreads "github.com/postern-dev/postern/internal/pg/reads"
)

// lived writes what a life around the hour $1 leaves: 3 of each moment, so that slices begin and end among them;
// moments are a few in the hour, its borders, and a microsecond beside them; some came in a day before, some were
// moved.
const lived = `WITH moment AS (SELECT array_agg(at ORDER BY at) AS at FROM (
		SELECT $1::timestamptz + interval '7 minutes' * i AS at FROM generate_series(-2, 10) i
		UNION ALL SELECT $1::timestamptz + x FROM unnest('{-1 us, 1 us, 01:00:00, 59:59.999999, 1:00:00.000001}'::interval[]) x) m),
	row AS (SELECT i, 1000 + (i * 7919) % 211 AS queue_id, i AS seq, moment.at[1 + (i / 3 * 11) % cardinality(moment.at)] AS came,
			moment.at[1 + (i / 3 * 5) % cardinality(moment.at)] AS done
		FROM generate_series(1, 400) i, moment),
	task AS (INSERT INTO postern.task (queue_id, seq, day, context_id, type, data, moved_from, created_at)
		SELECT queue_id, seq, ($1::timestamptz AT TIME ZONE 'UTC')::date - (i % 10 = 4)::int, 1 + i % 3 / 2, 'T' || i % 4, '{}', CASE WHEN i % 17 = 0 THEN gen_random_uuid() END,
			least(came, done) - CASE WHEN i % 10 = 4 THEN interval '20 hours' ELSE '0' END FROM row)
	INSERT INTO postern.outcome (queue_id, seq, day, context_id, was, state, error_class, error_code, attempt, retries, fence, sender_id, started_at, submitted_at, done_at)
	SELECT queue_id, seq, ($1::timestamptz AT TIME ZONE 'UTC')::date - (i % 10 = 4)::int, 1 + i % 3 / 2, (ARRAY['DISPATCHING', 'DISPATCHING', 'DISPATCHING', 'DISPATCHING', 'WAITING', 'DISPATCHING'])[1 + i % 6],
		(ARRAY['DONE', 'DONE', 'DONE', 'FAILED', 'CANCELLED', 'UNRESOLVED'])[1 + i % 6], CASE i % 6 WHEN 3 THEN 'execution' WHEN 5 THEN 'ambiguous' END,
		CASE WHEN i % 23 = 0 THEN 'moved' WHEN i % 6 = 3 THEN 'c' || i % 2 WHEN i % 6 = 5 THEN '' END, 1, i % 4, 7, nullif(i % 5, 0),
		CASE WHEN i % 6 <> 4 THEN least(came, done) + (done - least(came, done)) * (i * 7919 % 1000) / 1000 END,
		CASE WHEN i % 6 <> 4 AND i % 2 = 0 THEN done - (done - least(came, done)) * (i * 7919 % 1000) / 10000 END, done
	FROM row WHERE i % 13 > 0`

// wasSQL counts an hour in one statement from the rows themselves; saysSQL reads its roll-up.
const (
	wasSQL = `WITH ends AS (SELECT o.*, t.type, t.created_at, t.moved_from FROM postern.outcome o JOIN postern.task t USING (queue_id, seq, day)
			WHERE date_trunc('hour', o.done_at, 'UTC') = $1 AND coalesce(o.error_code, '') <> 'moved'),
		span AS (SELECT e.context_id, y.type, s.state, s.took, CASE WHEN s.took <= '1 ms' THEN 0 ELSE least(127, ceil(4 * log(2, extract(epoch FROM s.took) * 1000))) END AS bucket FROM ends e
			CROSS JOIN LATERAL (VALUES (e.type), ('')) y(type)
			CROSS JOIN LATERAL (VALUES ('WAITING', e.started_at - e.created_at), ('DISPATCHING', coalesce(e.submitted_at, e.done_at) - e.started_at),
				('REVISION', e.done_at - e.submitted_at), ('', e.done_at - e.created_at)) s(state, took) WHERE s.took IS NOT NULL),
		hours AS (SELECT context_id, type, state, array_agg(bucket ORDER BY bucket) AS b, max(greatest(took, '0')) AS most FROM span GROUP BY 1, 2, 3)
		SELECT concat_ws(' ', 'count', context_id, type, sum(came), count(*) FILTER (WHERE state = 'DONE'), count(*) FILTER (WHERE state = 'FAILED'),
				count(*) FILTER (WHERE state = 'UNRESOLVED'), count(*) FILTER (WHERE state = 'CANCELLED'), sum(retries))
			FROM (SELECT context_id, type, state, 0 AS came, retries FROM ends
				UNION ALL SELECT context_id, type, NULL, 1, 0 FROM postern.task WHERE date_trunc('hour', created_at, 'UTC') = $1 AND moved_from IS NULL) x GROUP BY context_id, type
		UNION ALL SELECT concat_ws(' ', 'time', context_id, type, state, cardinality(b), date_trunc('millisecond', least(power(2, b[ceil(cardinality(b) * 0.5)] / 4) * interval '1 ms', most)),
			date_trunc('millisecond', least(power(2, b[ceil(cardinality(b) * 0.95)] / 4) * interval '1 ms', most)), most,
			(SELECT string_agg(g || ':' || cardinality(array_positions(b, g)), ' ' ORDER BY g) FROM generate_series(0, 127) g WHERE g = ANY (b))) FROM hours
		UNION ALL SELECT concat_ws(' ', 'failure', context_id, type, coalesce(error_class, ''), coalesce(error_code, ''), count(*), min(done_at), max(done_at),
			(array_agg(postern.public_id(queue_id, seq, day, postern.salt(created_at, moved_from)) ORDER BY done_at DESC, queue_id, seq))[1])
			FROM ends WHERE state <> 'DONE' GROUP BY context_id, type, coalesce(error_class, ''), coalesce(error_code, '')
		UNION ALL SELECT concat_ws(' ', 'sender', context_id, sender_id, count(*), count(*) FILTER (WHERE state <> 'DONE'), sum(done_at - greatest(started_at, $1)))
			FROM ends WHERE sender_id IS NOT NULL GROUP BY context_id, sender_id
		ORDER BY 1`
	saysSQL = `SELECT concat_ws(' ', 'count', context_id, type, accepted, done, failed, unresolved, cancelled, retries) FROM postern.rollup WHERE hour = $1
		UNION ALL SELECT concat_ws(' ', 'time', context_id, type, state, n, date_trunc('millisecond', p50), date_trunc('millisecond', p95), most,
			(SELECT string_agg(g - 1 || ':' || x, ' ' ORDER BY g) FROM unnest(buckets) WITH ORDINALITY u(x, g) WHERE x > 0)) FROM postern.rollup_time WHERE hour = $1
		UNION ALL SELECT concat_ws(' ', 'failure', context_id, type, error_class, error_code, n, first_at, last_at, sample_id) FROM postern.rollup_failure WHERE hour = $1
		UNION ALL SELECT concat_ws(' ', 'sender', context_id, sender_id, n, failed, busy) FROM postern.rollup_sender WHERE hour = $1
		ORDER BY 1`
)

// live writes a life around the hour before this one, and returns it.
func (w *world) live() time.Time {
	w.T.Helper()
	hour := w.Now.Truncate(time.Hour).Add(-time.Hour)
	_, err := w.S.Pool().Exec(w.Ctx, `INSERT INTO postern.context (name) SELECT 'another' WHERE (SELECT count(*) FROM postern.context) < 2`)
	w.Must(err)
	_, err = w.S.Pool().Exec(w.Ctx, `SELECT postern.ensure_days(($1::timestamptz AT TIME ZONE 'UTC')::date - 1, ($1::timestamptz AT TIME ZONE 'UTC')::date)`, hour)
	w.Must(err)
	_, err = w.S.Pool().Exec(w.Ctx, lived, hour)
	w.Must(err)
	return hour
}

// more ends one that has not, in the hour.
func (w *world) more(hour time.Time) {
	w.T.Helper()
	tag, err := w.S.Pool().Exec(w.Ctx, `INSERT INTO postern.outcome (queue_id, seq, day, context_id, was, state, done_at)
		SELECT queue_id, seq, day, context_id, 'WAITING', 'CANCELLED', $1::timestamptz + interval '1 us' FROM postern.task t
		WHERE NOT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq, o.day) = (t.queue_id, t.seq, t.day)) LIMIT 1`, hour)
	w.Must(err)
	if tag.RowsAffected() != 1 {
		w.T.Fatal("all have ended")
	}
}

// Into however many slices an hour is cut, and wherever their borders are, its figures are those of one statement.
func TestAnHourInSlicesIsThatOfOneStatement(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hour := w.live()
	_, err := w.S.Pool().Exec(w.Ctx, `WITH task AS (INSERT INTO postern.task (queue_id, seq, day, context_id, type, data, created_at)
			SELECT 3000, i, ($1::timestamptz AT TIME ZONE 'UTC')::date, 1, 'T' || i % 3, '{}', $1 + i * interval '17 s' FROM generate_series(1, 200) i RETURNING *)
		INSERT INTO postern.outcome (queue_id, seq, day, context_id, was, state, done_at) SELECT queue_id, seq, day, context_id, 'WAITING', 'CANCELLED', created_at FROM task`, hour)
	w.Must(err)
	want := w.Lines(wasSQL, hour)
	if len(want) < 50 {
		t.Fatalf("%d figures: %q", len(want), want)
	}
	for _, c := range []struct{ atOnce, least, most int }{{1, 215, 260}, {5, 30, 75}, {40, 3, 20}, {1000, 1, 1}} {
		_, err := w.S.Pool().Exec(w.Ctx, `TRUNCATE postern.rolled, postern.rollup, postern.rollup_time, postern.rollup_failure, postern.rollup_sender`)
		w.Must(err)
		n := 1 // with what adds them up by 16
		w.Must(w.S.Reads.RollHour(w.Ctx, hour, c.atOnce, func(_ context.Context, atOnce int, _ time.Duration) (int, error) { n++; return atOnce, nil }))
		if n < c.least || n > c.most {
			t.Errorf("%d slices of %d rows; want %d to %d", n, c.atOnce, c.least, c.most)
		}
		if got := w.Lines(saysSQL, hour); !slices.Equal(got, want) {
			t.Errorf("by %d:\n%q\nwant\n%q", c.atOnce, got, want)
		}
	}
}

// A process that stops while it rests does not wait, and leaves what was there.
func TestARollUpThatIsCutOffLeavesTheOldFigures(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hour := w.live()
	w.Must(w.S.Reads.RollHour(w.Ctx, hour, 1000, pgreads.Unhurried(0)))
	old, rolled := w.Lines(saysSQL, hour), w.Lines(`SELECT r::text FROM postern.rolled r`)
	w.more(hour)
	ctx, cancel := context.WithCancel(w.Ctx)
	n := 0
	err := w.S.Reads.RollHour(ctx, hour, 5, func(ctx context.Context, atOnce int, _ time.Duration) (int, error) {
		if n++; n < 9 {
			return atOnce, nil
		}
		cancel()
		return pgreads.Unhurried(0)(ctx, atOnce, time.Hour)
	})
	if !errors.Is(err, context.Canceled) || n != 9 {
		t.Errorf("%v after %d slices", err, n)
	}
	w.Same(w.Lines(saysSQL, hour), old...)
	w.Same(w.Lines(`SELECT r::text FROM postern.rolled r`), rolled...)
	run := w.Lines(`SELECT concat(begun, ' ', parts) FROM postern.rolling`)
	w.Must(w.Another(1).Reads.RollHour(w.Ctx, hour, 5, pgreads.Unhurried(0))) // goes on with it
	w.Same(run, w.Lines(`SELECT concat(as_of, ' ', 9) FROM postern.rolled`)...)
	w.Same(w.Lines(saysSQL, hour), w.Lines(wasSQL, hour)...)
}

// Two that roll up an hour at once take turns in one run: no slice counts twice, and when one has ended it the other
// stops.
func TestTwoRollUpsOfAnHourAreOneRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hour, n := w.live(), 0
	w.Must(w.S.Reads.RollHour(w.Ctx, hour, 40, func(_ context.Context, atOnce int, _ time.Duration) (int, error) {
		if n++; n == 2 {
			if hours, err := w.Another(1).Reads.RollUp(w.Ctx); err != nil || hours != 0 {
				t.Errorf("of one that moves somebody else rolled up %d hours, %v", hours, err)
			}
			w.Must(w.Another(1).Reads.RollHour(w.Ctx, hour, 5, pgreads.Unhurried(0)))
		}
		return atOnce, nil
	}))
	if n != 2 {
		t.Errorf("%d slices of a run that another has ended", n)
	}
	w.Same(w.Lines(saysSQL, hour), w.Lines(wasSQL, hour)...)

	w.more(hour) // before it begins anew
	const step = `SELECT postern.roll_on($1, 40, NULL)`
	first, other, done := w.Begin(w.S.Pool()), w.Other(), make(chan error, 1)
	_, err := first.Exec(w.Ctx, step, hour)
	w.Must(err)
	go func() { done <- other.S.Reads.RollHour(w.Ctx, hour, 40, pgreads.Unhurried(0)) }()
	w.AwaitBlocked(other.PID)
	w.Must(first.Commit(w.Ctx))
	w.Must(<-done)
	w.Same(w.Lines(saysSQL, hour), w.Lines(wasSQL, hour)...)
	w.Same(w.Lines(`SELECT hour::text FROM postern.rolling UNION ALL SELECT hour::text FROM postern.rolling_part`))
}

// After a slow slice the next one is smaller, and after a quick one larger, within bounds.
func TestSlicesFitTheirTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		atOnce int
		took   time.Duration
		want   int
	}{{1000, time.Millisecond, 2000}, {2000, time.Millisecond, 2000}, {1000, 50 * time.Millisecond, 1000}, {1000, 101 * time.Millisecond, 500}, {150, 101 * time.Millisecond, 100}} {
		if got := pgreads.Fitting(c.atOnce, c.took); got != c.want {
			t.Errorf("%d in %s: %d, want %d", c.atOnce, c.took, got, c.want)
		}
	}
}

// A slice costs what lies in it, not what lies in its day.
func TestASliceOfAnHourReadsNoMoreThanIsInIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hour := w.live()
	_, err := w.S.Pool().Exec(w.Ctx, `INSERT INTO postern.task (queue_id, seq, day, context_id, type, data, created_at)
		SELECT 9000, i, ($1::timestamptz AT TIME ZONE 'UTC')::date, 1, 'T0', '{}', $1::timestamptz + i * interval '1 ms' FROM generate_series(1, 20000) i`, hour)
	w.Must(err)
	tx := w.Begin(w.S.Pool())
	read := func() (pages int) { // so far, by this session
		w.Must(tx.QueryRow(w.Ctx, `SELECT sum(pg_stat_get_xact_blocks_fetched(i.indexrelid))
			FROM pg_index i JOIN pg_inherits p ON p.inhrelid = i.indrelid WHERE p.inhparent = 'postern.task'::regclass`).Scan(&pages))
		return pages
	}
	before := read()
	_, err = tx.Exec(w.Ctx, `SELECT postern.roll_slice($1::timestamptz + interval '59 minutes', 1000)`, hour)
	w.Must(err)
	if pages := read() - before; pages > 150 {
		t.Errorf("a slice in which nothing came reads %d pages of the indexes of task", pages)
	}
}
