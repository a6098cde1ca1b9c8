package peers

import (
	"context"
	"slices"
	"strings"

	"github.com/postern-dev/postern/internal/pg/db"
)

// Sample is what metrics show of peers, over all contexts. One refuses while something waits for it.
type Sample struct {
	States  map[string]int64 // of those that are called: by whether they take calls or refuse them
	Refused float64          // seconds since the one refuses that has refused longest
}

// Waits registers a condition by which something waits for a peer p. Where nothing does, a refusal keeps nothing back,
// and no call is made that would find it over.
func (s *Store) Waits(condition string) { s.waits = append(s.waits, condition) }

// TakeSample counts peers. Where there are none it asks nothing.
func (s *Store) TakeSample(ctx context.Context) (v Sample, err error) {
	v.States = map[string]int64{}
	if !s.Has(Peers) {
		return v, nil
	}
	var takes, refuses int64
	waits := "(" + strings.Join(append(slices.Clone(s.waits), "false"), " OR ") + ")"
	err = s.Pool().QueryRow(ctx, `SELECT count(*) FILTER (WHERE r.at IS NULL), count(r.at),
			coalesce(extract(epoch FROM coalesce($1::timestamptz, clock_timestamp()) - min(r.at)), 0)::float8
		FROM postern.peer p
		CROSS JOIN LATERAL (SELECT CASE WHEN p.refused_at IS NOT NULL AND `+waits+`
			THEN p.refused_at END AS at) r
		WHERE p.url <> '' AND p.removed_at IS NULL`, s.Clock()).Scan(&takes, &refuses, &v.Refused)
	v.States["takes"], v.States["refuses"], v.Refused = takes, refuses, max(v.Refused, 0)
	return v, db.Known(err)
}
