package domains

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"maps"
	"slices"
	"strings"
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

// kept is what a process keeps of a seat from its last step.
type kept struct {
	steps, version int64
	life           int64
	stamp          string
	settings       *Settings
	d              *coord.Domain
	permits        []int
	top            int64
}

// core is what the row of a seat holds of its image.
type coreImage struct {
	Seat   coord.Seat
	Peers  []*coord.Peer
	Height int64
	Paused bool
}

const lockSQL = `SELECT d.context_id, d.name, d.settings, d.version, d.paused, s.image, s.height, s.step, s.lives,
		s.life, (SELECT x.life FROM postern.store x), s.changed
	FROM postern.coord_state s
	JOIN postern.domain d ON d.domain_id = s.domain_id
	WHERE s.domain_id = $1 AND d.removed_at IS NULL
	FOR UPDATE OF s`

// lock locks a seat and loads its image, with the intents and works of ids. It returns nil where there is no such
// domain or, unless it is to wait, where another one holds the lock.
//
// Why no step is lost and none is taken twice: each rises the number of steps behind this lock, and READ COMMITTED
// shows the statements behind it all that the last holder committed.
func (s *Store) lock(ctx context.Context, t *db.Txn, id int32, wait bool, ids []string) (*seat, error) {
	sql := lockSQL
	if !wait {
		sql += " SKIP LOCKED"
	}
	h := &seat{id: id, wrote: map[string]bool{}}
	var settings, image, changed []byte
	b := &pgx.Batch{}
	b.Queue(sql, id).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&h.context, &h.name, &settings, &h.version, &h.paused, &image, &h.height,
			&h.steps, &h.lives, &h.life, &h.newLife, &changed}, func() error { return nil })
		return err
	})
	s.ReadNow(b, &h.now)
	if err := t.Send(ctx, b); err != nil {
		return nil, err
	}
	if h.name == "" {
		return nil, nil
	}
	h.now = h.now.UTC()
	if err := json.Unmarshal(changed, &h.changed); err != nil {
		return nil, err
	}
	return h, s.load(ctx, t, h, settings, image, ids)
}

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

// stepsTold is how many steps back the row tells what they changed, and changesTold how many intents of each: two
// processes of an installation take steps in turns, and do not read all that waits each time.
const (
	stepsTold   = 16
	changesTold = 64
)

// change is what a step has changed. Its stamp is its own: a database that went back gives its number to another one.
type change struct {
	Stamp string   `json:"stamp"`
	IDs   []string `json:"ids,omitempty"` // of intents
	Many  bool     `json:"many,omitempty"`
}

// since lists the intents that steps have changed since those of an image that is kept. It is not known of an image of
// a step that the row does not tell of, be it too old or of a history that is lost.
func (h *seat) since(k *kept) (ids []string, known bool) {
	if k == nil || k.life != h.life || h.life != h.newLife {
		return nil, false
	}
	at := len(h.changed) - 1 - int(h.steps-k.steps)
	if at < 0 || at >= len(h.changed) || h.changed[at].Stamp != k.stamp {
		return nil, false
	}
	for _, c := range h.changed[at+1:] {
		if c.Many {
			return nil, false
		}
		ids = append(ids, c.IDs...)
	}
	slices.Sort(ids)
	return slices.Compact(ids), true
}

// leave takes over an image that is kept, without what has changed since, which is to be read again.
func (h *seat) leave(k *kept, changed []string) {
	is := func(id string) bool { _, found := slices.BinarySearch(changed, id); return found }
	h.d = k.d.Clone()
	h.d.Intents = slices.DeleteFunc(h.d.Intents, func(i *coord.Intent) bool { return is(i.ID) })
	h.d.Works = slices.DeleteFunc(h.d.Works, func(w *coord.Work) bool { return is(w.ID) })
	permits := h.d.Permits
	h.d.Permits, h.d.Calls = nil, nil
	for n, p := range permits {
		if !is(p.ID) {
			h.d.Permits, h.permits = append(h.d.Permits, p), append(h.permits, k.permits[n])
		}
	}
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

// tellChanged adds what this step changes to what the row tells of the last ones.
func (h *seat) tellChanged() ([]byte, error) {
	c := change{Stamp: rand.Text(), IDs: slices.Sorted(maps.Keys(h.wrote))}
	if len(c.IDs) > changesTold {
		c.IDs, c.Many = nil, true
	}
	h.changed = append(h.changed, c)
	h.changed = h.changed[max(0, len(h.changed)-stepsTold):]
	return json.Marshal(h.changed)
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

// keeps returns what this process keeps of a seat, or nil.
func (s *Store) keeps(id int32) *kept {
	k, _ := s.seats.Load(id)
	held, _ := k.(*kept)
	return held
}

// keep has the process remember a seat as a step has left it, once that is committed.
func (s *Store) keep(h *seat) { s.seats.Store(h.id, h.kept()) }

// kept is what is worth keeping of a seat.
func (h *seat) kept() *kept {
	d := h.d.Needed()
	k := &kept{steps: h.steps, version: h.version, life: h.newLife, settings: h.settings, d: d, top: h.top}
	if n := len(h.changed); n > 0 {
		k.stamp = h.changed[n-1].Stamp
	}
	d.Permits = nil
	for n, p := range h.d.Permits {
		if d.Intent(p.ID) != nil {
			d.Permits, k.permits = append(d.Permits, p), append(k.permits, h.permits[n])
		}
	}
	return k
}

// idOf reads the id of an intent; false for what is none.
func idOf(text string) (uuid.UUID, bool) {
	id, err := uuid.Parse(text)
	return id, err == nil && id.String() == text
}
