package domains

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg/db"
)

// Sample is what metrics show of domains, over all contexts.
type Sample struct {
	Intents      map[string]int64   // that have not ended, by state, to sampled in all
	Oldest       map[string]float64 // seconds that the oldest of them has been in its state
	Coordinators map[string]int64   // seats, by the state of the coordinator
}

// sampled is how many intents a sample reads at most.
const sampled = 100_000

// TakeSample counts intents and seats. Where no domain has anything to do it asks nothing.
func (s *Store) TakeSample(ctx context.Context) (v Sample, err error) {
	v = Sample{map[string]int64{}, map[string]float64{}, map[string]int64{}}
	if !s.Has(Domains) {
		return v, nil
	}
	rows, err := s.Pool().Query(ctx, `SELECT x.state, count(*),
			extract(epoch FROM coalesce($1::timestamptz, clock_timestamp()) - min(x.since))::float8
		FROM (SELECT i.state, i.since
			FROM postern.coord_intent i
			WHERE i.held AND i.ended_at IS NULL
			LIMIT $2) x
		GROUP BY x.state`, s.Clock(), sampled)
	if err != nil {
		return v, db.Known(err)
	}
	var state string
	var n int64
	var age float64
	if _, err := pgx.ForEachRow(rows, []any{&state, &n, &age}, func() error {
		v.Intents[state], v.Oldest[state] = n, max(age, 0)
		return nil
	}); err != nil {
		return v, db.Known(err)
	}
	rows, err = s.Pool().Query(ctx, `SELECT s.coordinator, count(*)
		FROM postern.coord_state s
		JOIN postern.domain d ON d.domain_id = s.domain_id
		WHERE d.removed_at IS NULL
		GROUP BY s.coordinator`)
	if err != nil {
		return v, db.Known(err)
	}
	_, err = pgx.ForEachRow(rows, []any{&state, &n}, func() error { v.Coordinators[state] = n; return nil })
	return v, db.Known(err)
}
