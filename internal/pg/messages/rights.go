package messages

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/actors"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Role is what an actor may in a context; each may what those before it may.
type Role int

// The roles of an actor, as actors.RoleSQL numbers them.
const (
	NoRole Role = iota
	Reader
	Executor
	Admin
)

// Needs is the role that the sender of a message of a type has in the context that it is for: to have scripts executed
// there it posts jobs, and to write to those who work there it is one of them.
func Needs(typ string) Role {
	if typ == message.Job {
		return Admin
	}
	return Reader
}

// readRole adds to b a reading of the role that an actor has in a context now.
func (s *Store) readRole(b *pgx.Batch, actor string, contextID int32, role *Role) {
	var system int32
	if c := s.Context(pg.System); c != nil {
		system = c.ID
	}
	b.Queue(actors.RoleSQL, actor, contextID, system, s.Clock()).
		QueryRow(func(row pgx.Row) error { return row.Scan(role) })
}

// RoleOf returns the role that an actor has in a context now.
func (s *Store) RoleOf(ctx context.Context, actor string, contextID int32) (role Role, err error) {
	if s.Open {
		return Admin, nil
	}
	b := &pgx.Batch{}
	s.readRole(b, actor, contextID, &role)
	return role, db.Known(s.Db(ctx).SendBatch(ctx, b).Close())
}

// allowed says for each message why its sender may not send it any more, nil if it may: it is an admin where it sends
// from, and has the role that the message needs where that is for. It reads in t, behind the locks of the messages, and
// so does the clock that it returns.
//
// The rows of the contexts stay locked until the commit: the removal of one waits, and finds the message, or this one
// waits, and finds that the context was removed.
func (s *Store) allowed(ctx context.Context, t *db.Txn, list []*Message) (refusals []*fault.Error, now time.Time,
	err error) {
	contexts := map[int32]bool{0: true} // those that are here; 0: at a peer
	var ids []int32
	for _, m := range list {
		ids = append(ids, m.Context, m.Target)
	}
	slices.Sort(ids)
	roles := make([]struct{ from, to Role }, len(list))
	b := &pgx.Batch{}
	b.Queue(`SELECT c.context_id
		FROM postern.context c
		WHERE c.context_id = ANY ($1) AND c.removed_at IS NULL
		ORDER BY c.context_id
		FOR KEY SHARE`, slices.Compact(ids)).Query(func(rows pgx.Rows) error {
		var id int32
		_, err := pgx.ForEachRow(rows, []any{&id}, func() error { contexts[id] = true; return nil })
		return err
	})
	s.ReadNow(b, &now)
	for i, m := range list {
		r := &roles[i]
		r.from, r.to = Admin, Admin
		if m.Context != 0 && !s.Open {
			s.readRole(b, m.Actor, m.Context, &r.from)
		}
		if m.Target != 0 && !s.Open {
			s.readRole(b, m.Actor, m.Target, &r.to)
		}
	}
	if err := t.Send(ctx, b); err != nil {
		return nil, now, err
	}
	if err := s.knowAll(ctx, contexts); err != nil {
		return nil, now, err
	}
	refusals = make([]*fault.Error, len(list))
	for i, m := range list {
		switch {
		case !contexts[m.Target], !contexts[m.Context]:
			refusals[i] = fault.New(fault.Forbidden, message.CodeForbidden, "one of its contexts was removed")
		case roles[i].from < Admin:
			refusals[i] = fault.New(fault.Forbidden, message.CodeForbidden,
				"%q is no admin any more of the context that sent it", fault.Clip(m.Actor))
		case roles[i].to < Needs(m.Type):
			refusals[i] = fault.New(fault.Forbidden, message.CodeForbidden,
				"%q has no role any more in context %q that lets it send a %s there", fault.Clip(m.Actor),
				fault.Clip(m.ToContext), m.Type)
		}
	}
	return refusals, now, nil
}

// knowAll reads the configuration anew where this process does not know a context yet.
func (s *Store) knowAll(ctx context.Context, contexts map[int32]bool) error {
	for id := range contexts {
		if id != 0 && s.ContextByID(id) == nil {
			return s.Refresh(ctx)
		}
	}
	return nil
}
