package pg

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	pgdb "github.com/postern-dev/postern/internal/pg/db"
)

// Context is a tenant.
type Context struct {
	ID             int32
	Name           string
	MaxDepth       int
	RequireKey     bool // a transaction without an idempotency key is refused
	DeclaredQueues bool // a queue that was not configured is refused
	Paused         bool
	Draining       bool // it accepts nothing more
	Version        int64
	CreatedAt      time.Time
}

// System is the context of objects without one of their own; its admins are admins everywhere.
const System = "system"

// Context returns the tenant of that name, or nil.
func (s *Store) Context(name string) *Context { return s.Conf.view.Load().contexts[name] }

// ContextByID returns a tenant, or nil.
func (s *Store) ContextByID(id int32) *Context { return s.Conf.view.Load().tenants[id] }

// contexts reads the tenants: all of them, or the one of a name.
func (s *Store) contexts(ctx context.Context, db pgdb.Querier, name string) ([]*Context, error) {
	rows, err := db.Query(ctx, contextsSQL, name)
	if err != nil {
		return nil, pgdb.Known(err)
	}
	list, err := scanContexts(rows)
	return list, pgdb.Known(err)
}

const contextsSQL = `SELECT context_id, name, max_depth, require_key, declared_queues, paused, draining, version, created_at
	FROM postern.context WHERE removed_at IS NULL AND ($1 = '' OR name = $1) ORDER BY name`

func scanContexts(rows pgx.Rows) ([]*Context, error) {
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Context, error) {
		c := &Context{}
		return c, row.Scan(&c.ID, &c.Name, &c.MaxDepth, &c.RequireKey, &c.DeclaredQueues, &c.Paused, &c.Draining, &c.Version, &c.CreatedAt)
	})
}

// Contexts lists the tenants by name as the database has them now.
func (s *Store) Contexts(ctx context.Context) ([]*Context, error) {
	return s.contexts(ctx, s.Db(ctx), "")
}

// Tenant is a context with its members.
type Tenant struct {
	Context
	Members
}

// Tenant returns one context with its members as the database has it now, or NotFound.
func (s *Store) Tenant(ctx context.Context, name string) (*Tenant, error) {
	list, err := s.contexts(ctx, s.Db(ctx), name)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 || name == "" {
		return nil, noContext(name)
	}
	all, err := s.MembersOf(ctx, []int32{list[0].ID})
	if err != nil {
		return nil, err
	}
	return &Tenant{*list[0], *all[list[0].ID]}, nil
}

func noContext(name string) error {
	return fault.New(fault.NotFound, "not_found", "no context %q", fault.Clip(name))
}

// contextSettings is what the audit row keeps of a context.
type contextSettings struct {
	Admins         []string `json:"admins"`
	Executors      []string `json:"executors"`
	Readers        []string `json:"readers"`
	RequireKey     bool     `json:"require_key"`
	DeclaredQueues bool     `json:"declared_queues"`
	MaxDepth       int      `json:"max_depth"`
}

// Settings returns what the audit row keeps of a context; nil of none.
func (t *Tenant) Settings() any {
	if t == nil {
		return nil
	}
	return contextSettings{t.Admins, t.Executors, t.Readers, t.RequireKey, t.DeclaredQueues, t.MaxDepth}
}

// LockTenant locks the row of a context and reads it with its members behind the lock, so that who changes
// members sees what the one before has committed. nil: there is none; version is then that of a deleted one.
func LockTenant(ctx context.Context, t *pgdb.Txn, name string) (v *Tenant, version int64, err error) {
	b := &pgx.Batch{}
	b.Queue(`SELECT context_id, max_depth, require_key, declared_queues, paused, removed_at IS NOT NULL, version, created_at
		FROM postern.context WHERE name = $1 FOR UPDATE`, name).Query(func(rows pgx.Rows) error {
		c, removed := Context{Name: name}, false
		_, err := pgx.ForEachRow(rows, []any{&c.ID, &c.MaxDepth, &c.RequireKey, &c.DeclaredQueues, &c.Paused, &removed, &c.Version, &c.CreatedAt}, func() error {
			if version = c.Version; !removed {
				v = &Tenant{Context: c}
			}
			return nil
		})
		return err
	})
	b.Queue(`SELECT m.actor_id, m.role FROM postern.member m JOIN postern.context c USING (context_id) WHERE c.name = $1 ORDER BY 1`, name).
		Query(func(rows pgx.Rows) error {
			var m Members
			var actor, role string
			_, err := pgx.ForEachRow(rows, []any{&actor, &role}, func() error { m.add(actor, role); return nil })
			if v != nil {
				v.Members = m.OrEmpty()
			}
			return err
		})
	return v, version, t.Send(ctx, b)
}

// lockSeen is LockTenant for a context that is there, for one of its admins who has seen it as it is.
func lockSeen(ctx context.Context, t *pgdb.Txn, by pgdb.By, name string) (*Tenant, error) {
	v, have, err := LockTenant(ctx, t, name)
	if err != nil {
		return nil, err
	}
	if v == nil {
		return nil, noContext(name)
	}
	return v, cmp.Or(by.Admin(ctx, t, v.ID), by.Seen(have))
}

// PutContext creates or replaces a context and its members, who stay where v names none. A version other than 0 must be
// the present one.
func (s *Store) PutContext(ctx context.Context, by pgdb.By, v Tenant, version int64) (created bool, err error) {
	return s.putContext(ctx, by, v, version, false)
}

// MakeContext is PutContext for an actor that makes a context of its own, or puts the one that it is an admin of: it
// names itself as an admin, alone unless it says more, and no other context has or had the name, since a deleted one
// left its audit, and what came for it late.
func (s *Store) MakeContext(ctx context.Context, by pgdb.By, v Tenant, version int64) (created bool, err error) {
	return s.putContext(ctx, by, v, version, true)
}

func (s *Store) putContext(ctx context.Context, by pgdb.By, v Tenant, version int64, own bool) (made bool, err error) {
	err = s.Run(ctx, func(t *pgdb.Txn) error {
		v := v // a second run begins with what was asked
		before, have, err := LockTenant(ctx, t, v.Name)
		if err != nil {
			return err
		}
		if err := s.mayPut(ctx, t, by, &v, before, have, own); err != nil {
			return err
		}
		made = before == nil
		if err := pgdb.MatchVersion(version, have, made); err != nil {
			return err
		}
		if before != nil && v.silent() {
			v.Members = before.Members
		}
		if before != nil && len(before.Admins) > 0 && len(v.Admins) == 0 {
			return lastAdmin(v.Name)
		}
		by, err := WriteTenant(ctx, t, by, v)
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		v.Members = v.OrEmpty()
		s.AuditChange(b, by, "put", "/contexts/"+v.Name, before.Settings(), v.Settings())
		return t.Commit(ctx, b)
	})
	if err != nil {
		return false, err
	}
	return made, s.Reconfigured(ctx)
}

// mayPut refuses, behind the lock of a context, a caller who may not put it: admins of system make contexts, and its
// own admins change one; own: an actor makes it for itself.
func (s *Store) mayPut(ctx context.Context, t *pgdb.Txn, by pgdb.By, v, before *Tenant, have int64, own bool) error {
	switch {
	case own && have == 0 && v.silent():
		v.Admins = []string{by.Actor}
		return nil
	case own && have == 0 && slices.Contains(v.Admins, by.Actor):
		return nil
	case own && have == 0:
		return fault.At("/admins", "admins: want yourself, %q, among those of a context that you make", by.Actor)
	case own && (before == nil || !slices.Contains(before.Admins, by.Actor)):
		return fault.New(fault.Conflict, "in_use", "a context %s exists, or did: choose another name", v.Name)
	case before != nil:
		return by.Admin(ctx, t, before.ID)
	}
	err := by.Admin(ctx, t, s.Context(System).ID)
	if fault.CodeOf(err) == "forbidden" {
		return noContext(v.Name)
	}
	return err
}

// WriteTenant writes a context and its members, and returns by for its own audit rows.
func WriteTenant(ctx context.Context, t *pgdb.Txn, by pgdb.By, v Tenant) (pgdb.By, error) {
	b := &pgx.Batch{}
	b.Queue(`INSERT INTO postern.context (name, max_depth, require_key, declared_queues) VALUES ($1, $2, $3, $4)
		ON CONFLICT (name) DO UPDATE SET max_depth = excluded.max_depth, require_key = excluded.require_key,
			declared_queues = excluded.declared_queues, removed_at = NULL, version = context.version + 1
		RETURNING context_id`, v.Name, v.MaxDepth, v.RequireKey, v.DeclaredQueues).
		QueryRow(func(row pgx.Row) error { return row.Scan(&by.Context) })
	if err := t.Send(ctx, b); err != nil {
		return by, err
	}
	return by, writeMembers(ctx, t, by.Context, v.Members)
}

// keeping is what keeps a context from being deleted.
type keeping struct{ what, exists string }

// Needs registers what keeps a context from being deleted, before anything runs. what names it in the plural, and
// exists is a condition of SQL that says whether the context $1 has any.
func (s *Store) Needs(what, exists string) { s.keeps = append(s.keeps, keeping{what, exists}) }

// keepAll registers what the core keeps of a context.
func (s *Store) keepAll() {
	s.Needs("dispatchers", `EXISTS (SELECT FROM postern.dispatcher WHERE context_id = $1 AND removed_at IS NULL)`)
	s.Needs("senders", `EXISTS (SELECT FROM postern.sender WHERE context_id = $1 AND removed_at IS NULL)`)
	s.Needs("configured queues", `EXISTS (SELECT FROM postern.queue_name WHERE context_id = $1 AND configured)`)
	s.Needs("transactions", `EXISTS (SELECT FROM postern.task WHERE context_id = $1 AND created_at > '-infinity')`)
}

// RemoveContext takes away a context that holds nothing. Its row stays, so that what a slow client posts at
// the same moment is stored under it, and is there when the context is put again.
func (s *Store) RemoveContext(ctx context.Context, by pgdb.By, name string) error {
	if name == System || name == "default" {
		return fault.New(fault.Conflict, "in_use", "context %s always exists", name)
	}
	err := s.Run(ctx, func(t *pgdb.Txn) error {
		before, err := lockSeen(ctx, t, by, name)
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		has := make([]bool, len(s.keeps))
		for i, h := range s.keeps {
			b.Queue(`SELECT `+h.exists, before.ID).QueryRow(func(row pgx.Row) error { return row.Scan(&has[i]) })
		}
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		for i, h := range s.keeps {
			if has[i] {
				return fault.New(fault.Conflict, "in_use", "context %s still has %s: only an empty one can be deleted "+
					"(transactions leave with their retention)", name, h.what)
			}
		}
		b = &pgx.Batch{}
		b.Queue(`DELETE FROM postern.member WHERE context_id = $1`, before.ID)
		b.Queue(`DELETE FROM postern.api_key WHERE context_id = $1`, before.ID)
		b.Queue(`UPDATE postern.context SET removed_at = clock_timestamp(), paused = false, draining = false, version = version + 1 WHERE context_id = $1`, before.ID)
		by.Context = s.Context(System).ID // the rows of the one that is gone are not read
		s.AuditChange(b, by, "delete", "/contexts/"+name, before.Settings(), nil)
		return t.Commit(ctx, b)
	})
	if err != nil {
		return err
	}
	return s.Reconfigured(ctx)
}

// PauseContext stops what a context sends out, or lets it go on, and ends a drain: the lanes of all its types are
// closed, those of types that come later too. Calls that are out end, and posts are accepted all the while.
func (s *Store) PauseContext(ctx context.Context, by pgdb.By, name string, paused bool) (LeverResult, error) {
	return s.SetFlag(ctx, by, Verb(paused), "/contexts/"+name, `UPDATE postern.context SET paused = $3, draining = draining AND $3, version = version + 1
		WHERE context_id = $1 AND name = $2 AND removed_at IS NULL AND (paused <> $3 OR draining AND NOT $3)`, lockContext, name, paused)
}

const lockContext = `SELECT version, removed_at IS NOT NULL FROM postern.context WHERE context_id = $1 AND name = $2 FOR UPDATE`

// lastAdmin refuses to leave a context without an admin.
func lastAdmin(name string) error {
	return fault.New(fault.Conflict, "wrong_state", "the last admin of context %s cannot leave: name another one first", name).With("lever", "PUT /contexts/"+name+"/members/{actor}")
}

// names returns every actor that occurs, once, sorted.
func (m *Members) names() []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(m.Admins, m.Executors, m.Readers))))
}
