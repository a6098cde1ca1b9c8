package messages

import (
	"context"

	"github.com/postern-dev/postern/internal/pg/db"
)

// Sample is what metrics show of messages that have not ended, over all contexts.
type Sample struct {
	Open   map[string]int64   // by what they wait for, to sampled in all
	Oldest map[string]float64 // seconds since the oldest of them waits
}

// Waits are what a message may wait for.
var Waits = []string{"delivery", "acknowledgement", "result"}

// sampled is how many messages a sample reads at most.
const sampled = 100_000

// TakeSample counts messages. Where there are none it asks nothing.
func (s *Store) TakeSample(ctx context.Context) (v Sample, err error) {
	v = Sample{map[string]int64{}, map[string]float64{}}
	if !s.Has(Messages) {
		return v, nil
	}
	for _, w := range Waits {
		v.Open[w], v.Oldest[w] = 0, 0
	}
	rows, err := s.Pool().Query(ctx, `SELECT x.waits, count(*),
			extract(epoch FROM coalesce($1::timestamptz, clock_timestamp()) - min(x.since))::float8
		FROM (
			SELECT CASE WHEN m.status = 'acknowledged' THEN 'result' WHEN m.delivered_at IS NOT NULL THEN
				'acknowledgement'
				ELSE 'delivery' END AS waits, coalesce(m.acked_at, m.delivered_at, m.created_at) AS since
			FROM postern.message m
			WHERE m.ended_at IS NULL
			LIMIT $2) x
		GROUP BY x.waits`, s.Clock(), sampled)
	if err != nil {
		return v, db.Known(err)
	}
	defer rows.Close()
	for rows.Next() {
		var waits string
		var n int64
		var age float64
		if err := rows.Scan(&waits, &n, &age); err != nil {
			return v, db.Known(err)
		}
		v.Open[waits], v.Oldest[waits] = n, max(age, 0)
	}
	return v, db.Known(rows.Err())
}
