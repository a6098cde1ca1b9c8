package flows

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Sample is what metrics show of jobs and runners, over all contexts.
type Sample struct {
	Offers   map[string]int64   // tries that runners may take, by script type, to sampledOffers in all
	Oldest   map[string]float64 // seconds that the oldest of them has been offered, by script type
	Stranded map[string]float64 // the same, of those that no runner takes which is alive and not paused
	Runners  map[string]int64   // by state: live, paused, silent
}

// sampledOffers is how many offers a sample reads at most.
const sampledOffers = 100_000

// sampledLane is the offers of a lane.
type sampledLane struct {
	offer
	n      int64
	oldest time.Time
}

// TakeSample counts offers and runners. Where there are no jobs it asks nothing.
func (s *Store) TakeSample(ctx context.Context) (v Sample, err error) {
	v = Sample{map[string]int64{}, map[string]float64{}, map[string]float64{},
		map[string]int64{"live": 0, "paused": 0, "silent": 0}}
	if !s.Has(Jobs) {
		return v, nil
	}
	var lanes []sampledLane
	var now time.Time
	taken := map[offer]bool{}
	b := &pgx.Batch{}
	s.readLeaseNow(b, &now)
	b.Queue(`SELECT t.context_id, t.lane, count(*), min(t.offered_at)
		FROM (
			SELECT x.context_id, x.lane, x.offered_at
			FROM postern.job_try x
			WHERE x.state = 'Offered'
			LIMIT $1) t
		GROUP BY t.context_id, t.lane`, sampledOffers).Query(func(rows pgx.Rows) (err error) {
		lanes, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l sampledLane, err error) {
			return l, row.Scan(&l.context, &l.lane, &l.n, &l.oldest)
		})
		return err
	})
	b.Queue(`SELECT r.context_id, ` + runnerColumns + `
		FROM postern.runner r
		WHERE r.removed_at IS NULL
		LIMIT 10000`).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			r := heldRunner{}
			if err := rows.Scan(append([]any{&r.context}, r.fields()...)...); err != nil {
				return err
			}
			state := r.stateAt(now)
			if v.Runners[state]++; state != "live" {
				continue
			}
			for _, lane := range r.lanes() {
				taken[offer{r.context, lane}] = true
			}
		}
		return rows.Err()
	})
	if err := s.Pool().SendBatch(ctx, b).Close(); err != nil {
		return v, db.Known(err)
	}
	for _, l := range lanes {
		typ, age := flow.TypeOfLane(l.lane), max(now.Sub(l.oldest).Seconds(), 0)
		v.Offers[typ] += l.n
		v.Oldest[typ] = max(v.Oldest[typ], age)
		if v.Stranded[typ] = max(v.Stranded[typ], 0); !taken[l.offer] {
			v.Stranded[typ] = max(v.Stranded[typ], age)
		}
	}
	return v, nil
}

// stateAt is what people call the state of a runner.
func (r *heldRunner) stateAt(now time.Time) string {
	switch {
	case r.Paused:
		return "paused"
	case r.SeenAt == nil || r.SeenAt.Add(r.patience).Before(now):
		return "silent"
	}
	return "live"
}
