package actors

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Actor is an identity that may be a member of contexts. Its callers prove that they are this actor with one of its
// public keys, or with a token in which an identity provider names its issuer and subject.
type Actor struct {
	ID              string
	PublicKeys      []string // those that are live, in base64: read alone
	Address         []string
	Issuer, Subject string // both or none
	Version         int64
	CreatedAt       time.Time
}

// actorSettings is what the audit row keeps of an actor.
type actorSettings struct {
	Address []string `json:"address"`
	Issuer  string   `json:"issuer,omitempty"`
	Subject string   `json:"subject,omitempty"`
}

func (a *Actor) settings() any {
	return actorSettings{a.Address, a.Issuer, a.Subject}
}

const actorSQL = `SELECT actor_id, ARRAY(SELECT encode(k.public_key, 'base64')
		FROM postern.actor_key k
		WHERE k.actor_id = actor.actor_id AND k.retired_at IS NULL
		ORDER BY k.slot), address, coalesce(issuer, ''), coalesce(subject, ''), version, created_at
	FROM postern.actor`

func scanActor(row pgx.CollectableRow) (*Actor, error) {
	a := &Actor{}
	return a, row.Scan(&a.ID, &a.PublicKeys, &a.Address, &a.Issuer, &a.Subject, &a.Version, &a.CreatedAt)
}

// Actors lists up to limit actors, the newest first: those before an id, all if it is "".
func (s *Store) Actors(ctx context.Context, before string, limit int) ([]*Actor, error) {
	rows, err := s.Db(ctx).Query(ctx, actorSQL+` WHERE $1 = '' OR actor_id < $1 ORDER BY actor_id DESC LIMIT $2`,
		before, limit)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanActor)
	return list, db.Known(err)
}

// Actor returns one actor, or NotFound.
func (s *Store) Actor(ctx context.Context, id string) (*Actor, error) {
	rows, err := s.Db(ctx).Query(ctx, actorSQL+` WHERE actor_id = $1`, id)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanActor)
	if err == nil && len(list) == 0 {
		return nil, noActor(id)
	}
	if err != nil {
		return nil, db.Known(err)
	}
	return list[0], nil
}

// ActorOf returns the actor of an OIDC subject, or "".
func (s *Store) ActorOf(ctx context.Context, issuer, subject string) (id string, err error) {
	err = s.Db(ctx).QueryRow(ctx, `SELECT actor_id FROM postern.actor WHERE issuer = $1 AND subject = $2`,
		issuer, subject).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return id, db.Known(err)
}

func noActor(id string) error {
	return fault.New(fault.NotFound, "not_found", "no actor %q", fault.Clip(id))
}

// NewActor is what CreateActor makes.
type NewActor struct {
	Actor
	Keys []ed25519.PublicKey
	// Own is the name of a context that is made with the actor, whose only admin it is; "" for none.
	Own string
	// Registers is the signature of the request by which the actor registers itself; nil: an admin makes it.
	Registers *Signed
}

// CreateActor makes an actor with its keys, and its own context. replay says that the same request was answered before;
// id is then that of the first. One who registers itself again under its key is that actor, and nothing is changed.
func (s *Store) CreateActor(ctx context.Context, by db.By, a NewActor, once db.Once) (
	id string, replay bool, err error,
) {
	err = s.Run(ctx, func(t *db.Txn) error {
		id, replay = a.ID, false
		if err := by.Admin(ctx, t, s.Context(pg.System).ID); err != nil {
			return err
		}
		first, err := t.Replayed(ctx, once,
			`SELECT actor_id, request_hash FROM postern.actor WHERE request_key = $1`, once.Key)
		if err != nil {
			return err
		}
		if first != "" {
			id, replay = first, true
			return t.Rollback(ctx)
		}
		b := &pgx.Batch{}
		b.Queue(`INSERT INTO postern.actor (actor_id, address, issuer, subject, request_key, request_hash)
			VALUES ($1, $2, $3, $4, $5, $6)`,
			a.ID, a.Address, db.Nullable(a.Issuer), db.Nullable(a.Subject), db.Nullable(once.Key), once.Hash)
		s.AuditChange(b, by, "create", "/actors/"+a.ID, nil, a.settings())
		if err := t.Send(ctx, b); err != nil {
			return subjectTaken(err, &a.Actor)
		}
		for i, key := range a.Keys {
			at := fmt.Sprintf("/public_keys/%d", i)
			if err := s.insertKey(ctx, t, by, a.ID, at, key, i+1); err != nil {
				return err
			}
		}
		if a.Registers != nil {
			if err := s.use(ctx, t, *a.Registers); err != nil {
				return err
			}
		}
		b = &pgx.Batch{}
		if a.Own != "" {
			if err := s.makeOwn(ctx, t, by, a, b); err != nil {
				return err
			}
		}
		return t.Commit(ctx, b)
	})
	if err != nil || a.Own == "" {
		return id, replay, err
	}
	return id, replay, s.Reconfigured(ctx)
}

// makeOwn makes the context of a new actor, and adds its audit row to b.
func (s *Store) makeOwn(ctx context.Context, t *db.Txn, by db.By, a NewActor, b *pgx.Batch) error {
	there, version, err := pg.LockTenant(ctx, t, a.Own)
	if err != nil {
		return err
	}
	if there != nil || a.Registers != nil && version != 0 {
		return fault.New(fault.Conflict, "in_use",
			"context %q exists already, or did: choose another name for own_context", fault.Clip(a.Own))
	}
	v := pg.Tenant{
		Context: pg.Context{Name: a.Own, MaxDepth: DefaultMaxDepth},
		Members: pg.Members{Admins: []string{a.ID}},
	}
	owner, err := pg.WriteTenant(ctx, t, by, v)
	if err != nil {
		return err
	}
	v.Members = v.OrEmpty()
	s.AuditChange(b, owner, "put", "/contexts/"+a.Own, nil, v.Settings())
	return nil
}

// DefaultMaxDepth is how many transactions a queue of a new context may hold.
const DefaultMaxDepth = 10000

func subjectTaken(err error, a *Actor) error {
	var e *pgconn.PgError
	if errors.As(err, &e) && e.ConstraintName == "one_actor_per_subject" {
		return fault.New(fault.Conflict, "in_use", "%s of issuer %s is an actor already",
			fault.Clip(a.Subject), fault.Clip(a.Issuer))
	}
	return err
}

// PutActor replaces the settings of an actor. A version other than 0 must be the present one.
func (s *Store) PutActor(ctx context.Context, by db.By, a Actor, version int64) error {
	return s.Run(ctx, func(t *db.Txn) error {
		before, err := lockActor(ctx, t, a.ID)
		if err != nil {
			return err
		}
		if err := db.MatchVersion(version, before.Version, false); err != nil {
			return err
		}
		if a.Issuer != before.Issuer || a.Subject != before.Subject { // it names another person
			if err := by.Admin(ctx, t, s.Context(pg.System).ID); err != nil {
				return err
			}
		}
		b := &pgx.Batch{}
		b.Queue(`UPDATE postern.actor SET address = $2, issuer = $3, subject = $4, version = version + 1
			WHERE actor_id = $1`, a.ID, a.Address, db.Nullable(a.Issuer), db.Nullable(a.Subject))
		s.AuditChange(b, by, "patch", "/actors/"+a.ID, before.settings(), a.settings())
		if err := t.Send(ctx, b); err != nil {
			return subjectTaken(err, &a)
		}
		return t.Commit(ctx, &pgx.Batch{})
	})
}

func lockActor(ctx context.Context, t *db.Txn, id string) (a *Actor, err error) {
	b := &pgx.Batch{}
	b.Queue(actorSQL+` WHERE actor_id = $1 FOR UPDATE OF actor`, id).Query(func(rows pgx.Rows) error {
		list, err := pgx.CollectRows(rows, scanActor)
		if len(list) > 0 {
			a = list[0]
		}
		return err
	})
	if err := t.Send(ctx, b); err != nil {
		return nil, err
	}
	if a == nil {
		return nil, noActor(id)
	}
	return a, nil
}

// RemoveActor forgets an actor that is no member of any context. Its keys never name another one. A commit that makes
// it a member at the same moment waits for the lock, by the foreign key, and is refused.
func (s *Store) RemoveActor(ctx context.Context, by db.By, id string) error {
	return s.Run(ctx, func(t *db.Txn) error {
		before, err := lockActor(ctx, t, id)
		if err != nil {
			return err
		}
		if err := by.Seen(before.Version); err != nil {
			return err
		}
		var in []string
		b := &pgx.Batch{}
		b.Queue(`SELECT DISTINCT c.name FROM postern.member m JOIN postern.context c USING (context_id) WHERE m.actor_id = $1 ORDER BY 1 LIMIT 4`, id).
			Query(func(rows pgx.Rows) (err error) { in, err = pgx.CollectRows(rows, pgx.RowTo[string]); return err })
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if len(in) > 0 {
			return fault.New(fault.Conflict, "in_use",
				"%s is a member of %v: DELETE /contexts/%s/members/%s first", id, in, in[0], id)
		}
		b = &pgx.Batch{}
		spend(b, id)
		b.Queue(`DELETE FROM postern.actor WHERE actor_id = $1`, id)
		s.AuditChange(b, by, "delete", "/actors/"+id, before.settings(), nil)
		return t.Commit(ctx, b)
	})
}
