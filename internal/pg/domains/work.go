package domains

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/pg/db"
)

// WorkRow is a work as readers see it.
type WorkRow struct {
	ID     string // of the intent
	Place  int64
	State  coord.State
	Since  time.Time
	Public string // the uid of the public transaction of its generation, "": none was dispatched
	Image  coord.Work
	Now    time.Time // of the clock by which Since was written
}

// Works lists up to limit works that a domain's node coordinates, those that are over left out, in the order of the
// pool, those behind a place. A work that is assembled, or comes back, moves to the end meanwhile.
func (s *Store) Works(ctx context.Context, contextID int32, domain, state string, after int64, limit int) ([]*WorkRow,
	error) {
	d, err := s.Domain(ctx, contextID, domain)
	if err != nil {
		return nil, err
	}
	rows, err := s.Db(ctx).Query(ctx, `SELECT w.intent_id::text, w.place, w.state, w.since,
			coalesce((SELECT a.uid FROM postern.coord_activity a
				WHERE (a.domain_id, a.intent_id, a.generation) = (w.domain_id, w.intent_id, w.generation)), ''),
			w.image, coalesce($5::timestamptz, clock_timestamp())
		FROM postern.coord_work w
		WHERE w.domain_id = $1 AND w.held AND w.state NOT IN ('Final', 'Evicted') AND ($2 = '' OR w.state = $2)
			AND w.place > $3
		ORDER BY w.place
		LIMIT $4`, d.ID, state, after, limit, s.Clock())
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*WorkRow, error) {
		w := &WorkRow{}
		var image []byte
		err := row.Scan(&w.ID, &w.Place, &w.State, &w.Since, &w.Public, &image, &w.Now)
		if err == nil {
			err = json.Unmarshal(image, &w.Image)
		}
		return w, err
	})
	return list, db.Known(err)
}
