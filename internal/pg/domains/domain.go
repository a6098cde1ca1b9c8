package domains

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Domain is one as this installation has it.
type Domain struct {
	ID          int32
	Name        string
	Settings    Settings
	Former      []string // names that this node had in it before
	Paused      bool
	Height      int64
	Originator  coord.State
	Coordinator coord.State
	Quarantined bool           // its store may have lost something
	Known       []*coord.Peer  // each of its nodes as it was heard, by name; this one too
	Intents     map[string]int // that have not ended, by state
	Works       map[string]int // that are not over, by state
	Version     int64
	CreatedAt   time.Time
}

// Digest names the order in which its nodes coordinate.
func (d *Domain) Digest() string {
	return coord.New(d.Name, d.Settings.Self, d.Settings.coord(), 1).Digest()
}

const domainsSQL = `SELECT d.domain_id, d.name, d.settings, d.former, d.paused, s.height, s.originator, s.coordinator,
		coalesce((s.image->>'Paused')::boolean, false), s.image->'Peers', d.version, d.created_at, s.intents, s.works
	FROM postern.domain d
	JOIN postern.coord_state s ON s.domain_id = d.domain_id
	WHERE d.context_id = $1 AND d.removed_at IS NULL AND ($2 = '' OR d.name = $2) AND d.name > $3
	ORDER BY d.name
	LIMIT $4`

func (s *Store) domains(ctx context.Context, contextID int32, name, after string, limit int) ([]*Domain, error) {
	rows, err := s.Db(ctx).Query(ctx, domainsSQL, contextID, name, after, limit)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Domain, error) {
		d := &Domain{}
		err := row.Scan(&d.ID, &d.Name, &d.Settings, &d.Former, &d.Paused, &d.Height, &d.Originator, &d.Coordinator,
			&d.Quarantined, &d.Known, &d.Version, &d.CreatedAt, &d.Intents, &d.Works)
		return d, err
	})
	return list, db.Known(err)
}

// Domains lists up to limit domains of a context by name, those after a given one.
func (s *Store) Domains(ctx context.Context, contextID int32, after string, limit int) ([]*Domain, error) {
	return s.domains(ctx, contextID, "", after, limit)
}

// Domain returns one domain, or NotFound.
func (s *Store) Domain(ctx context.Context, contextID int32, name string) (*Domain, error) {
	list, err := s.domains(ctx, contextID, name, "", 1)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 || name == "" {
		return nil, noDomain(name)
	}
	return list[0], nil
}

func noDomain(name string) error {
	return fault.New(fault.NotFound, "not_found", "no domain %q", fault.Clip(name))
}

const domainLock = `SELECT version, removed_at IS NOT NULL FROM postern.domain WHERE context_id = $1
	AND name = $2 FOR UPDATE`

// Put creates a domain or replaces its settings; version as in db.MatchVersion. Settings that are there already change
// nothing. Its height, and whether it is paused, are changed by calls of their own.
func (s *Store) Put(ctx context.Context, by db.By, name string, set Settings, version int64) (created bool, err error) {
	if err := s.knowsTypes(ctx, by.Context, set.Types); err != nil {
		return false, err
	}
	set.Clamp()
	if len(set.Clamped) > 0 {
		s.Log.Warn("settings of a domain were out of their bounds", "domain", name, "settings", set.Clamped)
	}
	doc, err := json.Marshal(set)
	if err != nil {
		return false, err
	}
	err = s.Run(ctx, func(t *db.Txn) error {
		created, err = t.LockVersion(ctx, version, domainLock, by.Context, name)
		if err != nil {
			return err
		}
		var before any
		if !created {
			old, same, err := s.changed(ctx, t, by.Context, name, set.Self, string(doc))
			if err != nil {
				return err
			}
			if same {
				return t.Rollback(ctx)
			}
			before = old
		}
		if err := s.knowsNodes(ctx, t, by.Context, set); err != nil {
			return err
		}
		if err := s.holdsTypes(ctx, t, by.Context, set); err != nil {
			return err
		}
		b, err := s.writeDomain(ctx, t, by.Context, name, set, string(doc), created)
		if err != nil {
			return err
		}
		s.AuditChange(b, by, "put", "/domains/"+name, before, set)
		return t.Commit(ctx, b)
	})
	if err != nil || len(set.Nodes) < 2 || db.JointOf(ctx) != nil {
		return created, err
	}
	s.ring()
	return created, s.Appeared(ctx, !s.Has(Nodes) || !s.Has(Domains))
}

// changed reads the settings that a domain has, and says whether they are the new ones. The name of a node stands in
// its messages and ids, and so it stays while there is anything that has not ended.
func (s *Store) changed(ctx context.Context, t *db.Txn, contextID int32, name, self, doc string) (
	old Settings, same bool, err error) {
	row := t.Conn.QueryRow(ctx, `SELECT settings, settings = $3::text::jsonb
		FROM postern.domain
		WHERE context_id = $1 AND name = $2`, contextID, name, doc)
	if err := row.Scan(&old, &same); err != nil {
		return old, false, err
	}
	if old.Self != self {
		err = s.idle(ctx, t, contextID, name, "self cannot change")
	}
	return old, same, err
}

// writeDomain makes the statements that store a domain: its row, that of its seat, and the call for its height. One
// that is created where another of its name was removed has the seat of that, but begins at a height of its own.
func (s *Store) writeDomain(ctx context.Context, t *db.Txn, contextID int32, name string, set Settings, doc string,
	created bool) (*pgx.Batch, error) {
	var now time.Time
	b := &pgx.Batch{}
	s.ReadNow(b, &now)
	if err := t.Send(ctx, b); err != nil {
		return nil, err
	}
	image, err := imageOf(coord.New(name, set.Self, set.coord(), now.UnixMicro()))
	if err != nil {
		return nil, err
	}
	var due *time.Time // a domain with other nodes is looked at from now on
	if len(set.Nodes) > 1 {
		due = &now
	}
	b = &pgx.Batch{}
	b.Queue(`INSERT INTO postern.domain AS d (context_id, name, settings, created_at)
		VALUES ($1, $2, $3::text::jsonb, $4)
		ON CONFLICT (context_id, name) DO UPDATE SET settings = excluded.settings, removed_at = NULL,
			version = d.version + 1, paused = d.paused AND d.removed_at IS NULL,
			former = array_remove(array_remove(d.former, d.settings->>'self') || (d.settings->>'self'),
				excluded.settings->>'self')`, contextID, name, doc, now)
	const of = ` FROM postern.domain d WHERE d.context_id = $1 AND d.name = $2 `
	b.Queue(`INSERT INTO postern.coord_state AS s (domain_id, image, originator, coordinator, due, life)
		SELECT d.domain_id, $3, 'Idle', 'Idle', $4::timestamptz, (SELECT x.life FROM postern.store x)`+of+`
		ON CONFLICT (domain_id) DO UPDATE
			SET due = least(s.due, excluded.due), height = CASE WHEN $5 THEN 0 ELSE s.height END,
				image = CASE WHEN $5 THEN jsonb_set(s.image, '{Height}', '0') ELSE s.image END`, contextID, name, image,
		due, created)
	if set.asks(CallHeight) {
		b.Queue(`INSERT INTO postern.coord_call (domain_id, key, kind, call, due)
			SELECT d.domain_id, 'height', 'height', '{}', $3`+of+`ON CONFLICT (domain_id, key) DO NOTHING`,
			contextID, name, now)
	}
	// What the service has no more is not asked. A step that has the seat may still add a call by the settings before:
	// the statement above waits for it, and this one, behind it, sees that call.
	for _, kind := range []string{CallHeight, CallSettled} {
		if !set.asks(kind) {
			b.Queue(`DELETE FROM postern.coord_call WHERE kind = $3 AND domain_id = (SELECT d.domain_id`+of+`)`,
				contextID, name, kind)
		}
	}
	if len(set.Nodes) < 2 { // no step reads them: see putIn
		b.Queue(`DELETE FROM postern.coord_in WHERE domain_id = (SELECT d.domain_id`+of+`)`, contextID, name)
	}
	return b, nil
}

// knowsTypes refuses types without a dispatcher, and those that only a system of Postern posts.
func (s *Store) knowsTypes(ctx context.Context, contextID int32, types []string) error {
	for i, typ := range types {
		at := "/types/" + itoa(i)
		if by := outbox.SystemOf(typ); by != outbox.Anyone {
			return fault.At(at, "type %q is posted by Postern for another purpose: want one of your own",
				fault.Clip(typ))
		}
		d, err := s.Dispatcher(ctx, contextID, typ)
		switch {
		case fault.KindOf(err) == fault.NotFound:
			return noType(i, typ)
		case err != nil:
			return err
		}
		if err := d.MayPost(outbox.ByAdmin); err != nil {
			return fault.At(at, "%s", fault.As(err).Detail)
		}
	}
	return nil
}

// SetPaused has a domain do nothing new, or go on: no step is taken by itself, its service is not called, and no public
// transaction is posted. What the core has goes on. Idempotent.
func (s *Store) SetPaused(ctx context.Context, by db.By, name string, paused bool) (r pg.LeverResult, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		created, err := t.LockVersion(ctx, 0, domainLock, by.Context, name)
		if err != nil {
			return err
		}
		if created {
			return noDomain(name)
		}
		if err := by.Seen(t.Version); err != nil {
			return err
		}
		var have bool
		if err := t.Conn.QueryRow(ctx, `SELECT paused FROM postern.domain WHERE context_id = $1 AND name = $2`,
			by.Context, name).
			Scan(&have); err != nil {
			return err
		}
		r.Changed = have != paused
		b := &pgx.Batch{}
		if r.Changed {
			b.Queue(`UPDATE postern.domain SET paused = $3, version = version + 1 WHERE context_id = $1
				AND name = $2`, by.Context, name,
				paused)
		}
		s.AuditIn(b, by, pg.Verb(paused), "/domains/"+name)
		return t.Commit(ctx, b)
	})
	if err == nil && r.Changed {
		s.ring()
	}
	return r, err
}

// jump is how many ranges a height may rise at once without force: more is likely a typing error.
const jump = 10

// SetHeight raises the block height of a domain, or lowers it by force. The same one changes nothing.
func (s *Store) SetHeight(ctx context.Context, by db.By, name string, height int64, force bool) error {
	var id int32
	lower := false
	err := s.Run(ctx, func(t *db.Txn) error {
		var have int64
		var set Settings
		id, lower = 0, false
		b := &pgx.Batch{} // the lock, and then the look: see lock
		b.Queue(`SELECT true FROM postern.coord_state s WHERE s.domain_id = (SELECT d.domain_id FROM postern.domain d
			WHERE d.context_id = $1 AND d.name = $2) FOR UPDATE`, by.Context, name)
		b.Queue(`SELECT d.domain_id, d.settings, s.height FROM postern.domain d JOIN postern.coord_state s
			USING (domain_id)
			WHERE d.context_id = $1 AND d.name = $2 AND d.removed_at IS NULL`, by.Context, name).
			Query(func(rows pgx.Rows) error {
				_, err := pgx.ForEachRow(rows, []any{&id, &set, &have}, func() error { return nil })
				return err
			})
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		switch most := have + jump*set.BlockRange; {
		case id == 0:
			return noDomain(name)
		case height > mostNumber:
			return fault.At("/height", "height %d: want at most %d", height, int64(mostNumber))
		case height < have && force:
			lower = true
			return t.Rollback(ctx)
		case height < have:
			return fault.At("/height", "height %d is over: it is %d already, and falls by force alone: force: true, "+
				"if it was wrong", height, have)
		case have > 0 && height > most && !force:
			return fault.At("/height",
				"height %d is more than %d ranges of blocks above %d: force: true, if it is right", height, jump, have)
		}
		b = &pgx.Batch{}
		b.Queue(`UPDATE postern.coord_state
			SET height = $2, due = CASE WHEN due IS NOT NULL THEN coalesce($3::timestamptz, clock_timestamp()) END
			WHERE domain_id = $1`, id, height, s.Clock())
		return t.Commit(ctx, b)
	})
	if err == nil && lower {
		err = s.lower(ctx, by, id, name, height)
	}
	if err == nil {
		s.ring()
	}
	return err
}

// lower takes back a height that was wrong: in a step, since the image has it, too.
func (s *Store) lower(ctx context.Context, by db.By, id int32, name string, height int64) error {
	out, err := s.step(ctx, id, taking{wait: true, more: func(_ context.Context, _ *db.Txn, h *seat, b *pgx.Batch) (
		[]Event, error) {
		if height >= h.height { // somebody was faster
			return nil, nil
		}
		h.height = height
		b.Queue(`UPDATE postern.coord_state SET height = $2 WHERE domain_id = $1`, id, height)
		s.AuditIn(b, by, "lower", "/domains/"+name+"/height")
		return []Event{{Event: coord.Event{Lever: coord.Lower}}}, nil
	}})
	if err == nil && !out.Taken {
		return noDomain(name)
	}
	return err
}

// Remove removes a domain all of whose intents have ended; Conflict "in_use" with those that have not.
//
// Why no intent is posted to a domain that is removed: a post holds the lock of the seat. It comes before this, whose
// statements behind that lock see the intent, or after it, and looks for the domain in a statement behind the lock.
func (s *Store) Remove(ctx context.Context, by db.By, name string) error {
	return s.Run(ctx, func(t *db.Txn) error {
		created, err := t.LockVersion(ctx, 0, domainLock, by.Context, name)
		if err != nil {
			return err
		}
		if created {
			return noDomain(name)
		}
		if err := by.Seen(t.Version); err != nil {
			return err
		}
		if err := s.idle(ctx, t, by.Context, name, "it is in use"); err != nil {
			return err
		}
		b := &pgx.Batch{}
		b.Queue(`UPDATE postern.domain SET removed_at = coalesce($3::timestamptz, clock_timestamp()),
			version = version + 1
			WHERE context_id = $1 AND name = $2`, by.Context, name, s.Clock())
		b.Queue(`DELETE FROM postern.coord_call c USING postern.domain d
			WHERE c.domain_id = d.domain_id AND d.context_id = $1 AND d.name = $2`, by.Context, name)
		b.Queue(`UPDATE postern.coord_state s SET due = NULL, changed = '[]' FROM postern.domain d
			WHERE s.domain_id = d.domain_id AND d.context_id = $1 AND d.name = $2`, by.Context, name)
		for _, table := range []string{"coord_in", "coord_out"} {
			b.Queue(`DELETE FROM postern.`+table+` x USING postern.domain d
				WHERE x.domain_id = d.domain_id AND d.context_id = $1 AND d.name = $2`, by.Context, name)
		}
		s.AuditIn(b, by, "delete", "/domains/"+name)
		return t.Commit(ctx, b)
	})
}

// idle refuses, behind the lock of the seat, a change that a domain with something under way cannot have.
func (s *Store) idle(ctx context.Context, t *db.Txn, contextID int32, name, what string) error {
	var intents, permits, works, untold []string
	b := &pgx.Batch{}
	b.Queue(`SELECT s.domain_id FROM postern.coord_state s JOIN postern.domain d ON d.domain_id = s.domain_id
		WHERE d.context_id = $1 AND d.name = $2 FOR UPDATE OF s`, contextID, name)
	const of = ` WHERE x.domain_id = (SELECT d.domain_id FROM postern.domain d WHERE d.context_id = $1
		AND d.name = $2) AND `
	for _, q := range []struct {
		into *[]string
		sql  string
	}{
		{&intents, `SELECT x.intent_id::text FROM postern.coord_intent x` + of + `x.held AND x.ended_at IS NULL
			ORDER BY x.seq LIMIT 10`},
		{&permits, `SELECT x.intent_id::text FROM postern.coord_permit x` + of + `x.closed_at IS NULL
			ORDER BY x.given_at LIMIT 10`},
		{&works, `SELECT x.intent_id::text FROM postern.coord_work x` + of + `x.held
			AND x.state IN ('Ready_For_Dispatch', 'Dispatched', 'Submitted') LIMIT 10`},
		{&untold, `SELECT x.intent_id::text FROM postern.coord_work x` + of + `x.held
			AND x.state IN ('Confirmed', 'Reverted') AND NOT (x.image->>'Told')::boolean LIMIT 10`},
	} {
		b.Queue(q.sql, contextID, name).Query(func(rows pgx.Rows) (err error) {
			*q.into, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		})
	}
	if err := t.Send(ctx, b); err != nil {
		return err
	}
	if len(intents)+len(permits)+len(works)+len(untold) == 0 {
		return nil
	}
	return fault.New(fault.Conflict, "in_use", "domain %q: %s: intents have not ended: wait, or cancel them",
		fault.Clip(name), what).
		With("intents", some(intents)).With("open_permits", some(permits)).With("dispatched", some(works)).
		With("untold", some(untold))
}

func some(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
