package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// rollupHours is how far back an hour that was missed is made up for; rollupKept how long roll-ups stay.
const rollupHours, rollupKept = 49, "400 days"

// A statement of a roll-up reads as many ends, and as many arrivals, as it manages in rollupSlice, so that its snapshot
// is not held for longer; it begins with rollupAtOnce. Then it rests rollupRest times as long as it took, so that a
// roll-up takes at most a fifth of a core.
const rollupSlice, rollupAtOnce, rollupRest = 100 * time.Millisecond, 1000, 4

// RollUp writes the figures by the hour anew that report.throughput_hourly and its like show: of the present
// hour, and of those behind it that were not rolled up ten minutes after their end. It returns how many hours.
// Where the present hour has so much in it that rolling it up takes a while, it is left alone for twenty times
// the time that it worked, its rests not counted. An hour is read by many short statements and written by one SQL
// transaction: an error leaves its old figures. Of two processes at once the one that began later is right; while this
// process rolls up already, it does nothing.
func (s *Store) RollUp(ctx context.Context) (n int, err error) {
	if !s.rolling.TryLock() {
		return 0, nil
	}
	defer s.rolling.Unlock()
	now, err := s.Now(ctx)
	if err != nil {
		return 0, err
	}
	rows, err := s.pool.Query(ctx, `SELECT h FROM generate_series(date_trunc('hour', $1::timestamptz, 'UTC') - interval '1 hour' * $2,
			$1, interval '1 hour') h
		WHERE h + interval '1 hour' > (SELECT min(t.at) FROM postern.context c CROSS JOIN LATERAL
				(SELECT min(t.created_at) AS at FROM postern.task t WHERE t.context_id = c.context_id) t) -- before, there is nothing
			AND NOT EXISTS (SELECT FROM postern.rolled r WHERE r.hour = h AND (r.as_of > h + interval '70 minutes'
				OR h + interval '1 hour' > $1 AND r.took > '50 ms' AND r.as_of + 20 * r.took > clock_timestamp()))
		ORDER BY h DESC`, now, rollupHours-1)
	if err != nil {
		return 0, known(err)
	}
	hours, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	if err != nil {
		return 0, known(err)
	}
	for _, h := range hours {
		if err := s.rollHour(ctx, h, rollupAtOnce, unhurried); err != nil {
			return n, err
		}
		n++
	}
	for _, table := range []string{"rolled", "rollup", "rollup_time", "rollup_failure", "rollup_sender", "rollup_delivery"} {
		if _, err := s.pool.Exec(ctx, `DELETE FROM postern.`+table+` r WHERE r.hour < $1::timestamptz - interval '`+rollupKept+`'`, now); err != nil {
			return n, known(err)
		}
	}
	return n, nil
}

// rollHour rolls up one hour, so many ends and arrivals at once; pace is told so many and what they took, and says how many
// the next statement reads. What is committed behind its back is missed: as_of is the moment at which it began.
func (s *Store) rollHour(ctx context.Context, hour time.Time, atOnce int, pace func(ctx context.Context, atOnce int, took time.Duration) (int, error)) error {
	var asOf time.Time
	if err := s.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&asOf); err != nil {
		return known(err)
	}
	var total []byte
	var took time.Duration
	for since, ended := hour, false; ; {
		began := time.Now()
		if err := s.pool.QueryRow(ctx, `SELECT total, upto, ended FROM postern.roll_on($1, $2, $3)`, since, atOnce, total).Scan(&total, &since, &ended); err != nil {
			return known(err)
		}
		last := time.Since(began)
		took += last
		if ended {
			break
		}
		var err error
		if atOnce, err = pace(ctx, atOnce, last); err != nil {
			return err
		}
	}
	_, err := s.pool.Exec(ctx, `SELECT postern.roll_up($1, $2, $3, $4)`, hour, asOf, took, total)
	return known(err)
}

// unhurried keeps slices to rollupSlice and rests, or returns the error of a context that ends meanwhile.
func unhurried(ctx context.Context, atOnce int, took time.Duration) (int, error) {
	if err := rest(ctx, rollupRest*took); err != nil {
		return atOnce, err
	}
	switch {
	case took > rollupSlice:
		return max(atOnce/2, rollupAtOnce/10), nil
	case took < rollupSlice/4:
		return min(atOnce*2, rollupAtOnce*2), nil
	}
	return atOnce, nil
}

// rest waits, or returns the error of a context that ends meanwhile.
func rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
