package domains

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/pg/db"
)

// coreImage is what the row of a seat holds of its image.
type coreImage struct {
	Seat   coord.Seat
	Peers  []*coord.Peer
	Height int64
	Paused bool
}

// sortPermits has the permits stand in the order in which they were given.
func (h *seat) sortPermits() {
	order := make([]int, len(h.permits))
	for n := range order {
		order[n] = n
	}
	slices.SortFunc(order, func(a, b int) int {
		p, q := h.d.Permits[a], h.d.Permits[b]
		return cmp.Or(p.GivenAt.Compare(q.GivenAt), strings.Compare(p.ID, q.ID), h.permits[a]-h.permits[b])
	})
	var permits []*coord.Permit
	var numbers []int
	for _, n := range order {
		permits, numbers = append(permits, h.d.Permits[n]), append(numbers, h.permits[n])
	}
	h.d.Permits, h.permits = permits, numbers
}

func (h *seat) readCore(image []byte) error {
	var c coreImage
	if err := json.Unmarshal(image, &c); err != nil {
		return err
	}
	h.d.Seat, h.d.Peers, h.d.Height, h.d.Paused = c.Seat, c.Peers, c.Height, c.Paused
	return nil
}

func imageOf(d *coord.Domain) ([]byte, error) {
	return json.Marshal(coreImage{Seat: d.Seat, Peers: d.Peers, Height: d.Height, Paused: d.Paused})
}

// more loads the intents and works of ids that are not a part of the image.
func (s *Store) more(ctx context.Context, t *db.Txn, h *seat, ids []string) error {
	missing := slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		return h.d.Intent(id) != nil && h.d.Work(id) != nil
	})
	if len(missing) == 0 {
		return nil
	}
	h.d = h.d.Clone()
	return s.rows(ctx, t, h, `x.intent_id = ANY ($2::text[]::uuid[])`, missing, false)
}

// rows reads rows of a domain into its image. Those that it has already stay.
func (s *Store) rows(ctx context.Context, t *db.Txn, h *seat, which string, ids []string, calls bool) error {
	if ids == nil {
		ids = []string{}
	}
	var intents []*coord.Intent
	var works []*coord.Work
	b := &pgx.Batch{}
	b.Queue(`SELECT x.image FROM postern.coord_intent x WHERE x.domain_id = $1 AND (`+which+`) ORDER BY x.seq`, h.id,
		ids).
		Query(images(&intents))
	b.Queue(`SELECT x.image FROM postern.coord_work x WHERE x.domain_id = $1 AND (`+which+`) ORDER BY x.place`, h.id,
		ids).
		Query(images(&works))
	if calls {
		b.Queue(`SELECT max(x.seq) FROM postern.coord_intent x WHERE x.domain_id = $1`, h.id).
			QueryRow(func(row pgx.Row) error {
				var top *int64
				err := row.Scan(&top)
				if top != nil {
					h.top = *top
				}
				return err
			})
		b.Queue(`SELECT x.call FROM postern.coord_call x WHERE x.domain_id = $1 AND x.kind NOT IN ('settled', 'height')
			ORDER BY x.key`, h.id).Query(images(&h.d.Calls))
	}
	if err := t.Send(ctx, b); err != nil {
		return err
	}
	var fresh []string
	for _, i := range intents {
		if h.d.Intent(i.ID) == nil {
			h.d.Intents, fresh = append(h.d.Intents, i), append(fresh, i.ID)
		}
	}
	slices.SortStableFunc(h.d.Intents, func(a, b *coord.Intent) int { return int(a.Seq - b.Seq) })
	for _, w := range works {
		if h.d.Work(w.ID) == nil {
			h.d.Works = append(h.d.Works, w)
		}
	}
	slices.SortStableFunc(h.d.Works, func(a, b *coord.Work) int { return int(a.Place - b.Place) })
	if len(fresh) == 0 {
		return nil
	}
	return h.readPermits(ctx, t, fresh)
}

// readPermits reads the permits of intents that have just become a part of the image.
func (h *seat) readPermits(ctx context.Context, t *db.Txn, fresh []string) error {
	b := &pgx.Batch{}
	b.Queue(`SELECT p.n, p.intent_id::text, p.generation, p.node, p.install, p.beat, p.given_at, p.asked_at,
		p.closed_at,
			p.closed_by, p.ended
		FROM postern.coord_permit p
		WHERE p.domain_id = $1 AND p.intent_id = ANY ($2::text[]::uuid[])
		ORDER BY p.given_at, p.intent_id, p.n`, h.id, fresh).Query(func(rows pgx.Rows) error {
		var n int
		var p coord.Permit
		var asked, closed *time.Time
		_, err := pgx.ForEachRow(rows, []any{&n, &p.ID, &p.Generation, &p.Node, &p.Install, &p.Beat, &p.GivenAt, &asked,
			&closed, &p.ClosedBy, &p.Ended}, func() error {
			one := p
			one.GivenAt, one.AskedAt, one.ClosedAt = p.GivenAt.UTC(), timeOf(asked), timeOf(closed)
			h.d.Permits, h.permits = append(h.d.Permits, &one), append(slices.Clone(h.permits), n)
			return nil
		})
		return err
	})
	return t.Send(ctx, b)
}

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// images reads one column of images.
func images[T any](into *[]*T) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var raw []byte
		_, err := pgx.ForEachRow(rows, []any{&raw}, func() error {
			one := new(T)
			*into = append(*into, one)
			return json.Unmarshal(raw, one)
		})
		return err
	}
}
