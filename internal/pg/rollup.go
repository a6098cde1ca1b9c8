package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// rollupHours is how far back an hour that was missed is made up for; rollupKept how long roll-ups stay.
const rollupHours, rollupKept = 49, "400 days"

// RollUp writes the figures by the hour anew that report.throughput_hourly and its like show: of the present
// hour, and of those behind it that were not rolled up ten minutes after their end. It returns how many hours.
// Where the present hour has so much in it that rolling it up takes a while, it is left alone for twenty times
// as long. Two processes at once write the same.
func (s *Store) RollUp(ctx context.Context) (n int, err error) {
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
		b := &pgx.Batch{}
		b.Queue("BEGIN")
		b.Queue("SET LOCAL statement_timeout = '10min'")
		b.Queue("SET LOCAL max_parallel_workers_per_gather = 0") // it has time
		b.Queue("SELECT postern.roll_up($1)", h)
		b.Queue(`INSERT INTO postern.rolled (hour, as_of, took) VALUES ($1, clock_timestamp(), clock_timestamp() - now())
			ON CONFLICT (hour) DO UPDATE SET as_of = excluded.as_of, took = excluded.took`, h)
		b.Queue("COMMIT")
		if err := s.pool.SendBatch(ctx, b).Close(); err != nil {
			return n, known(err)
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
