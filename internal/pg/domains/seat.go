package domains

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/pg/db"
)

// seat is a domain behind the lock of its row of coord_state.
type seat struct {
	id, context int32
	name        string
	settings    *Settings
	former      []string // names that this node had before
	version     int64
	paused      bool
	height      int64
	steps       int64
	lives       []int64
	life        int64 // of the store, when the last step was taken
	newLife     int64 // of the store now: another one has lost something
	now         time.Time

	d       *coord.Domain   // never changed, only replaced
	changed []change        // by the last steps
	wrote   map[string]bool // intents that this step changes
	permits []int           // the numbers of its permits
	top     int64           // the highest seq of an intent
	started bool            // it has been looked at by this process before
}

const lockSQL = `SELECT true FROM postern.coord_state s WHERE s.domain_id = $1 FOR UPDATE`

const seatSQL = `SELECT d.context_id, d.name, d.settings, d.former, d.version, d.paused, s.image, s.height, s.step,
		s.lives, s.life, (SELECT x.life FROM postern.store x), s.changed
	FROM postern.coord_state s
	JOIN postern.domain d ON d.domain_id = s.domain_id
	WHERE s.domain_id = $1 AND d.removed_at IS NULL`

// lock locks a seat and loads its image, with the intents and works of ids. It returns errGone where there is no such
// domain, and nil where another one holds the lock, unless it is to wait.
//
// Why no step is lost and none is taken twice: each rises the number of steps behind this lock, and READ COMMITTED
// shows the statements behind it all that the last holder committed. That is why seatSQL is a statement of its own:
// one that waits looks again at the row alone that it has waited for, and so would find the domain as it was before a
// PUT or a DELETE that held the lock.
func (s *Store) lock(ctx context.Context, t *db.Txn, id int32, wait bool, ids []string) (*seat, error) {
	sql := lockSQL
	if !wait {
		sql += " SKIP LOCKED"
	}
	h := &seat{id: id, wrote: map[string]bool{}}
	var settings, image, changed []byte
	locked := false
	b := &pgx.Batch{}
	b.Queue(sql, id).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&locked}, func() error { return nil })
		return err
	})
	b.Queue(seatSQL, id).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&h.context, &h.name, &settings, &h.former, &h.version, &h.paused, &image,
			&h.height, &h.steps, &h.lives, &h.life, &h.newLife, &changed}, func() error { return nil })
		return err
	})
	s.ReadNow(b, &h.now)
	if err := t.Send(ctx, b); err != nil {
		return nil, err
	}
	switch {
	case h.name == "":
		return nil, errGone
	case !locked:
		return nil, nil
	}
	h.now = h.now.UTC()
	if err := json.Unmarshal(changed, &h.changed); err != nil {
		return nil, err
	}
	return h, s.load(ctx, t, h, settings, image, ids)
}

var errGone = errors.New("there is no such domain")

// load has a seat that is locked have its image: that of the last step of this process, with what the steps of others
// have changed since.
func (s *Store) load(ctx context.Context, t *db.Txn, h *seat, settings, image []byte, ids []string) error {
	k := s.keeps(h.id)
	changed, known := h.since(k)
	if known && len(changed) == 0 && k.steps == h.steps {
		h.d, h.permits, h.top, h.settings = k.d, k.permits, k.top, k.settings
		if k.version == h.version {
			return s.more(ctx, t, h, ids)
		}
		h.d = h.d.Clone()
	}
	h.settings = &Settings{}
	if err := json.Unmarshal(settings, h.settings); err != nil {
		return err
	}
	if h.d == nil {
		which := `held OR x.intent_id = ANY ($2::text[]::uuid[])`
		if known {
			h.leave(k, changed)
			which, ids = `x.intent_id = ANY ($2::text[]::uuid[])`, append(slices.Clone(ids), changed...)
		} else {
			h.d = &coord.Domain{Name: h.name}
		}
		if err := h.readCore(image); err != nil {
			return err
		}
		if err := s.rows(ctx, t, h, which, ids, true); err != nil {
			return err
		}
		h.sortPermits()
	}
	h.d.Settle(h.settings.Self, h.settings.coord())
	return s.more(ctx, t, h, ids)
}

// idOf reads the id of an intent; false for what is none.
func idOf(text string) (uuid.UUID, bool) {
	id, err := uuid.Parse(text)
	return id, err == nil && id.String() == text
}
