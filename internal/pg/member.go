package pg

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Roles of a member or of an API key, the least first. Each may what those before it may.
const (
	Reader   = "reader"
	Executor = "executor"
	Admin    = "admin"
)

// Members are the actors of a context, by role.
type Members struct {
	Admins, Executors, Readers []string
}

// silent says whether nothing is said of members.
func (m *Members) silent() bool { return m.Admins == nil && m.Executors == nil && m.Readers == nil }

func (m *Members) add(actor, role string) {
	switch role {
	case Admin:
		m.Admins = append(m.Admins, actor)
	case Executor:
		m.Executors = append(m.Executors, actor)
	case Reader:
		m.Readers = append(m.Readers, actor)
	}
}

// OrEmpty returns a copy whose lists are empty where those of m are nil: as JSON they are [] and not null.
func (m *Members) OrEmpty() Members {
	return Members{append([]string{}, m.Admins...), append([]string{}, m.Executors...), append([]string{}, m.Readers...)}
}

// MembersOf reads the members of contexts, by id of the context; one without members has empty lists.
func (s *Store) MembersOf(ctx context.Context, contexts []int32) (map[int32]*Members, error) {
	all := map[int32]*Members{}
	for _, id := range contexts {
		all[id] = &Members{}
	}
	rows, err := s.Db(ctx).Query(ctx, `SELECT context_id, actor_id, role FROM postern.member WHERE context_id = ANY ($1) ORDER BY actor_id`, contexts)
	if err != nil {
		return nil, db.Known(err)
	}
	var id int32
	var actor, role string
	if _, err := pgx.ForEachRow(rows, []any{&id, &actor, &role}, func() error { all[id].add(actor, role); return nil }); err != nil {
		return nil, db.Known(err)
	}
	for _, m := range all {
		*m = m.OrEmpty()
	}
	return all, nil
}

// RolesOf returns the roles of an actor by id of the context, the highest of each.
func (s *Store) RolesOf(ctx context.Context, actor string) (map[int32]string, error) {
	rows, err := s.Db(ctx).Query(ctx, `SELECT m.context_id, min(m.role) FROM postern.member m JOIN postern.context c USING (context_id)
		WHERE m.actor_id = $1 AND c.removed_at IS NULL GROUP BY m.context_id`, actor) // admin < executor < reader
	if err != nil {
		return nil, db.Known(err)
	}
	roles := map[int32]string{}
	var id int32
	var role string
	_, err = pgx.ForEachRow(rows, []any{&id, &role}, func() error { roles[id] = role; return nil })
	return roles, db.Known(err)
}

// writeMembers makes the members of a context exactly these. The caller holds the context's row.
func writeMembers(ctx context.Context, t *db.Txn, contextID int32, m Members) error {
	var missing []string
	b := &pgx.Batch{}
	b.Queue(`SELECT a FROM unnest($1::text[]) a WHERE NOT EXISTS (SELECT FROM postern.actor WHERE actor_id = a)`, m.names()).
		Query(func(rows pgx.Rows) (err error) { missing, err = pgx.CollectRows(rows, pgx.RowTo[string]); return err })
	if err := t.Send(ctx, b); err != nil {
		return err
	}
	for role, list := range map[string][]string{"/admins": m.Admins, "/executors": m.Executors, "/readers": m.Readers} {
		if i := slices.IndexFunc(list, func(a string) bool { return slices.Contains(missing, a) }); i >= 0 {
			return fault.At(role, "actor %q does not exist: POST /actors makes one", fault.Clip(list[i]))
		}
	}
	var actors, roles []string
	for _, a := range m.names() {
		for _, role := range m.rolesOf(a) {
			actors, roles = append(actors, a), append(roles, role)
		}
	}
	b = &pgx.Batch{}
	b.Queue(`DELETE FROM postern.member WHERE context_id = $1`, contextID)
	b.Queue(`INSERT INTO postern.member (context_id, actor_id, role)
		SELECT $1, n.actor_id, n.role FROM ROWS FROM (unnest($2::text[]), unnest($3::text[])) n(actor_id, role)`, contextID, actors, roles)
	return t.Send(ctx, b)
}

// SetMember gives an actor exactly these roles in a context; none: it leaves. The last admin cannot.
func (s *Store) SetMember(ctx context.Context, by db.By, name, actor string, roles []string) (r LeverResult, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		before, err := lockSeen(ctx, t, by, name)
		if err != nil {
			return err
		}
		next := before.without(actor)
		for _, role := range roles {
			next.add(actor, role)
		}
		held := before.rolesOf(actor)
		if len(roles) == 0 && len(held) == 0 {
			return fault.New(fault.NotFound, "not_found", "%q is no member of context %s", fault.Clip(actor), name)
		}
		if len(before.Admins) > 0 && len(next.Admins) == 0 {
			return lastAdmin(name)
		}
		has := next.rolesOf(actor)
		if r.Changed = !slices.Equal(held, has); !r.Changed {
			return t.Rollback(ctx)
		}
		if err := writeMembers(ctx, t, before.ID, next); err != nil {
			return memberMissing(err)
		}
		b := &pgx.Batch{}
		b.Queue(`UPDATE postern.context SET version = version + 1 WHERE context_id = $1`, before.ID)
		by.Context = before.ID
		s.AuditChange(b, by, "member", "/contexts/"+name+"/members/"+actor, held, has)
		return t.Commit(ctx, b)
	})
	if err != nil {
		return r, err
	}
	return r, s.Reconfigured(ctx)
}

// memberMissing says that the actor of the path does not exist, where writeMembers names a field of a body.
func memberMissing(err error) error {
	if f := fault.As(err); f.Code == "invalid" && strings.HasPrefix(f.Detail, "actor ") {
		return fault.New(fault.NotFound, "not_found", "%s", f.Detail)
	}
	return err
}

func (m *Members) without(actor string) Members {
	left := m.OrEmpty()
	for _, list := range []*[]string{&left.Admins, &left.Executors, &left.Readers} {
		*list = slices.DeleteFunc(*list, func(a string) bool { return a == actor })
	}
	return left
}

// rolesOf lists the roles of an actor, the highest first.
func (m *Members) rolesOf(actor string) []string {
	roles := []string{}
	for i, list := range [][]string{m.Admins, m.Executors, m.Readers} {
		if slices.Contains(list, actor) {
			roles = append(roles, []string{Admin, Executor, Reader}[i])
		}
	}
	return roles
}
