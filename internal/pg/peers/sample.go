package peers

import (
	"context"

	"github.com/postern-dev/postern/internal/pg/db"
)

// Sample is what metrics show of peers, over all contexts.
type Sample struct {
	States  map[string]int64 // of those that are called: by whether they take calls or refuse them
	Refused float64          // seconds since the one refuses that has refused longest
}

// TakeSample counts peers. Where there are none it asks nothing.
func (s *Store) TakeSample(ctx context.Context) (v Sample, err error) {
	v.States = map[string]int64{}
	if !s.Has(Peers) {
		return v, nil
	}
	var takes, refuses int64
	err = s.Pool().QueryRow(ctx, `SELECT count(*) FILTER (WHERE p.refused_at IS NULL), count(p.refused_at),
			coalesce(extract(epoch FROM coalesce($1::timestamptz, clock_timestamp()) - min(p.refused_at)), 0)::float8
		FROM postern.peer p
		WHERE p.url <> '' AND p.removed_at IS NULL`, s.Clock()).Scan(&takes, &refuses, &v.Refused)
	v.States["takes"], v.States["refuses"], v.Refused = takes, refuses, max(v.Refused, 0)
	return v, db.Known(err)
}
