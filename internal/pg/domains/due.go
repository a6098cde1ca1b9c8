package domains

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg/db"
)

// Due lists the domains that are to be looked at now, and says in how long the next one is; 0: none is. One that is
// paused is looked at if it never was: no intent of it ends before a process of the node is noted in it.
func (s *Store) Due(ctx context.Context) (ids []int32, next time.Duration, err error) {
	rows, err := s.Looks.Query(ctx, `SELECT s.domain_id, d.context_id,
			CASE WHEN i.brought OR d.paused THEN 0
			ELSE extract(epoch FROM s.due - n.now)::float8 END
		FROM postern.coord_state s
		JOIN postern.domain d ON d.domain_id = s.domain_id
		CROSS JOIN (SELECT coalesce($1::timestamptz, clock_timestamp())) n(now)
		CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM postern.coord_in x
			WHERE x.domain_id = s.domain_id AND x.error = '')) i(brought)
		WHERE d.removed_at IS NULL
			AND CASE WHEN d.paused THEN s.lives = '{}' ELSE s.due IS NOT NULL OR i.brought END
		ORDER BY s.due`, s.Clock())
	if err != nil {
		return nil, 0, db.Known(err)
	}
	var id, contextID int32
	var in float64
	_, err = pgx.ForEachRow(rows, []any{&id, &contextID, &in}, func() error {
		switch {
		case s.Quarantined(contextID, ""):
		case in <= 0:
			ids = append(ids, id)
		case next == 0:
			next = max(time.Duration(in*float64(time.Second)), time.Millisecond)
		}
		return nil
	})
	return ids, next, db.Known(err)
}

// InQuarantine says whether what a domain does must stay here.
func (s *Store) InQuarantine(ctx context.Context, id int32) (bool, error) {
	if !s.QuarantinedAny() {
		return false, nil
	}
	var contextID int32
	err := s.Db(ctx).QueryRow(ctx, `SELECT context_id FROM postern.domain WHERE domain_id = $1`, id).Scan(&contextID)
	return s.Quarantined(contextID, ""), db.Known(err)
}
