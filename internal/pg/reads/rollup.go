package reads

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// rollupHours is how far back an hour that was missed is made up for; rollupKept how long roll-ups stay.
const rollupHours, rollupKept = 49, "400 days"

// A statement of a roll-up reads as many ends, and as many arrivals, as it manages in rollupSlice, so that its snapshot
// is not held for longer; it begins with rollupAtOnce. Then it rests rollupRest times as long as it took, so that what
// is read once takes at most a fifth of a core, and the present hour, which is read again and again, a twentieth.
const rollupSlice, rollupAtOnce, rollupRest, rollupRestMeanwhile = 100 * time.Millisecond, 1000, 4, 19

// RollUp writes the figures by the hour anew that report.throughput_hourly and its like show: of the present hour, and
// of those behind it that were not rolled up ten minutes after their end. It returns how many hours. Where the present
// hour has so much in it that rolling it up takes a while, it is left alone for twenty times the time that it worked,
// its rests not counted. An hour is read by many short statements, and its old figures stay until the last. While
// anybody's run moves it does nothing; one that has not moved for half a minute has lost its process.
func (s *Store) RollUp(ctx context.Context) (n int, err error) {
	if !s.Rolling.TryLock() {
		return 0, nil
	}
	defer s.Rolling.Unlock()
	now, err := s.Now(ctx)
	if err != nil {
		return 0, err
	}
	rows, err := s.Pool().Query(ctx, `SELECT h FROM generate_series(date_trunc('hour', $1::timestamptz, 'UTC') - interval '1 hour' * $2,
			$1, interval '1 hour') h
		WHERE h + interval '1 hour' > (SELECT min(t.at) FROM postern.context c CROSS JOIN LATERAL
				(SELECT min(t.created_at) AS at FROM postern.task t WHERE t.context_id = c.context_id AND t.created_at > '-infinity') t) -- before, there is nothing
			AND NOT EXISTS (SELECT FROM postern.rolled r WHERE r.hour = h AND (r.as_of > h + interval '70 minutes'
				OR h + interval '1 hour' > $1 AND r.took > '50 ms' AND r.as_of + 20 * r.took > clock_timestamp()))
			AND NOT EXISTS (SELECT FROM postern.rolling r WHERE r.moved_at > clock_timestamp() - interval '30 seconds')
		ORDER BY h DESC`, now, rollupHours-1)
	if err != nil {
		return 0, db.Known(err)
	}
	hours, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	if err != nil {
		return 0, db.Known(err)
	}
	for _, h := range hours {
		if err := s.rollHour(ctx, h, rollupAtOnce, unhurried(h.Add(time.Hour).Sub(now))); err != nil {
			return n, err
		}
		n++
	}
	for _, table := range []string{"rolled", "rolling", "rolling_part", "rollup", "rollup_time", "rollup_failure", "rollup_sender", "rollup_delivery"} {
		if _, err := s.Exec(ctx, `DELETE FROM postern.`+table+` r WHERE r.hour < $1::timestamptz - interval '`+rollupKept+`'`, now); err != nil {
			return n, err
		}
	}
	return n, nil
}

// rollHour rolls up one hour, atOnce ends and arrivals in a statement. pace is told this number and how long the
// statement took, and returns the number for the next one. It goes on where another process has left off. Commits that
// come after its run began may be missing: as_of is the moment at which the run began.
func (s *Store) rollHour(ctx context.Context, hour time.Time, atOnce int, pace func(ctx context.Context, atOnce int, took time.Duration) (int, error)) error {
	for run := (*time.Time)(nil); ; {
		began := time.Now()
		var ended *bool
		err := s.WriteRow(ctx, `SELECT run, ended FROM postern.roll_on($1, $2, $3)`, []any{hour, atOnce, run}, &run, &ended)
		if err != nil {
			return err
		}
		if ended == nil || *ended {
			return nil
		}
		if atOnce, err = pace(ctx, atOnce, time.Since(began)); err != nil {
			return err
		}
	}
}

// unhurried makes a pace that rests, and keeps slices to rollupSlice, for an hour that goes on for so long; or that
// returns the error of a context that ends meanwhile.
func unhurried(goesOn time.Duration) func(context.Context, int, time.Duration) (int, error) {
	over := time.Now().Add(goesOn)
	return func(ctx context.Context, atOnce int, took time.Duration) (int, error) {
		times := time.Duration(rollupRest)
		if time.Now().Before(over) {
			times = rollupRestMeanwhile
		}
		return fitting(atOnce, took), pg.Rest(ctx, times*took)
	}
}

func fitting(atOnce int, took time.Duration) int {
	switch {
	case took > rollupSlice:
		return max(atOnce/2, rollupAtOnce/10)
	case took < rollupSlice/4:
		return min(atOnce*2, rollupAtOnce*2)
	}
	return atOnce
}
