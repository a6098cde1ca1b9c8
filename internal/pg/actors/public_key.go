package actors

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// PublicKey is a key with which an actor signs its requests and messages (S5.1). It names this actor for good: a key
// that is retired keeps its row, and one of an actor that was removed is spent.
type PublicKey struct {
	Actor       string
	Key         ed25519.PublicKey
	AddedAt     time.Time
	RetiredAt   *time.Time // nil: it is live
	Compromised bool       // nothing that it has signed is believed
}

// underWay is how long after the retirement of a key messages are taken that it has signed before.
const underWay = 24 * time.Hour

// Live says whether the key signs requests.
func (k *PublicKey) Live() bool { return k.RetiredAt == nil }

// Believes says why a message is not believed that the key has signed, was created at one moment and is received at
// another, nil if it is: a live key is believed; a retired one for what was under way then, for a day; a compromised
// one never. Fault: Forbidden unauthenticated.
func (k *PublicKey) Believes(created, received time.Time) error {
	switch {
	case k.Live():
		return nil
	case k.Compromised:
		return unbelieved("key %s was compromised: sign with another one", k.ID())
	case created.After(*k.RetiredAt):
		return unbelieved("key %s was retired at %s, and this was made after that: sign with another one",
			k.ID(), k.RetiredAt.UTC().Format(time.RFC3339))
	case received.After(k.RetiredAt.Add(underWay)):
		return unbelieved("key %s was retired at %s, more than a day ago: sign with another one",
			k.ID(), k.RetiredAt.UTC().Format(time.RFC3339))
	}
	return nil
}

func unbelieved(format string, args ...any) error {
	return fault.New(fault.Forbidden, "unauthenticated", format, args...)
}

// ID is the key as URLs and signatures name it.
func (k *PublicKey) ID() string { return keyID(k.Key) }

func keyID(key ed25519.PublicKey) string { return base64.RawURLEncoding.EncodeToString(key) }

const publicKeySQL = `SELECT actor_id, public_key, added_at, retired_at, compromised FROM postern.actor_key`

func scanPublicKey(row pgx.CollectableRow) (*PublicKey, error) {
	k := &PublicKey{}
	var raw []byte
	err := row.Scan(&k.Actor, &raw, &k.AddedAt, &k.RetiredAt, &k.Compromised)
	k.Key = raw
	return k, err
}

func publicKeys(ctx context.Context, q db.Querier, where string, args ...any) ([]*PublicKey, error) {
	rows, err := q.Query(ctx, publicKeySQL+where, args...)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanPublicKey)
	return list, db.Known(err)
}

// PublicKeysOf returns the keys of an actor, live and retired, the live ones first. Whether one is believed for a
// message, Believes says.
func (s *Store) PublicKeysOf(ctx context.Context, actor string) ([]*PublicKey, error) {
	return KeysOfActor(ctx, s.Db(ctx), actor)
}

// KeysOfActor is PublicKeysOf within an SQL transaction of its caller.
func KeysOfActor(ctx context.Context, q db.Querier, actor string) ([]*PublicKey, error) {
	return publicKeys(ctx, q, ` WHERE actor_id = $1 ORDER BY retired_at DESC NULLS FIRST, added_at`, actor)
}

// OwnersOf finds whom public keys name, live and retired ones; a key that names no actor is not in the list.
func OwnersOf(ctx context.Context, q db.Querier, keys ...[]byte) ([]*PublicKey, error) {
	return publicKeys(ctx, q, ` WHERE public_key = ANY ($1)`, keys)
}

const raiseVersion = `UPDATE postern.actor SET version = version + 1 WHERE actor_id = $1`

// insertKey gives an actor a key, in the commit that makes or locks it. at is where the key stands in the request.
// Whether the key is spent is looked at behind the insert, which waits for a removal of its actor that is under way.
func (s *Store) insertKey(ctx context.Context, t *db.Txn, by db.By, actor, at string, key ed25519.PublicKey,
	slot int) error {
	spent := false
	b := &pgx.Batch{}
	b.Queue(`INSERT INTO postern.actor_key (public_key, actor_id, slot, added_at)
		VALUES ($1, $2, $3, coalesce($4::timestamptz, clock_timestamp()))`, []byte(key), actor, slot, s.Clock())
	b.Queue(`SELECT EXISTS (SELECT FROM postern.spent_key x WHERE x.public_key = $1)`, []byte(key)).
		QueryRow(func(row pgx.Row) error { return row.Scan(&spent) })
	s.AuditChange(b, by, "add_key", "/actors/"+actor+"/keys/"+keyID(key), nil, nil)
	err := keyTaken(t.Send(ctx, b), at)
	if err == nil && spent {
		err = otherKey(at)
	}
	return err
}

// spend adds to b that the keys of an actor, which is about to be removed, name no other one.
func spend(b *pgx.Batch, actor string) {
	b.Queue(`INSERT INTO postern.spent_key (public_key)
		SELECT k.public_key FROM postern.actor_key k WHERE k.actor_id = $1
		ON CONFLICT DO NOTHING`, actor)
}

func keyTaken(err error, at string) error {
	var e *pgconn.PgError
	if errors.As(err, &e) && e.ConstraintName == "one_actor_per_public_key" {
		return otherKey(at)
	}
	return err
}

func otherKey(at string) error {
	return fault.New(fault.Conflict, "in_use", "this public key is one of another actor, or was: draw a new one").
		About(at)
}

// AddKey gives an actor one more key, whose holder has proved to have it. added is false if the actor has it already.
// Conflict: the key is of another actor, was retired, or two are live.
func (s *Store) AddKey(ctx context.Context, by db.By, actor string, key ed25519.PublicKey) (added bool, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		if err := s.lockToGive(ctx, t, by, actor); err != nil {
			return err
		}
		taken, err := OwnersOf(ctx, t.Conn, key)
		if err != nil {
			return err
		}
		switch {
		case len(taken) == 0:
		case taken[0].Actor != actor:
			return otherKey("/public_key")
		case !taken[0].Live():
			return fault.New(fault.Conflict, "wrong_state",
				"key %s was retired, and does not come back: draw a new one", taken[0].ID())
		default:
			added = false
			return t.Rollback(ctx)
		}
		slot, live := 1, 0
		b := &pgx.Batch{}
		b.Queue(`SELECT slot FROM postern.actor_key WHERE actor_id = $1 AND retired_at IS NULL`, actor).
			Query(func(rows pgx.Rows) error {
				used := 0
				_, err := pgx.ForEachRow(rows, []any{&used}, func() error {
					if live++; used == 1 {
						slot = 2
					}
					return nil
				})
				return err
			})
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if live > 1 {
			return fault.New(fault.Conflict, "wrong_state",
				"%s has two live keys, which is enough for a rotation: DELETE /actors/%s/keys/{key} retires one",
				actor, actor)
		}
		if err := s.insertKey(ctx, t, by, actor, "/public_key", key, slot); err != nil {
			return err
		}
		added = true
		b = &pgx.Batch{}
		b.Queue(raiseVersion, actor)
		return t.Commit(ctx, b)
	})
	return added, err
}

// lockToGive locks an actor that is given a key: by itself with a credential that still holds, or by an admin of
// system.
func (s *Store) lockToGive(ctx context.Context, t *db.Txn, by db.By, actor string) error {
	if by.Actor != actor {
		if err := by.Admin(ctx, t, s.Context(pg.System).ID); err != nil {
			return err
		}
	}
	if _, err := lockActor(ctx, t, actor); err != nil || by.Actor != actor {
		return err
	}
	return by.Admin(ctx, t, 0)
}

// RetireKey retires a key of an actor; compromised: nothing is believed that it has signed, also of before. changed is
// false if it was so already.
func (s *Store) RetireKey(ctx context.Context, by db.By, actor string, key ed25519.PublicKey, compromised bool) (
	changed bool, err error,
) {
	err = s.Run(ctx, func(t *db.Txn) error {
		of, err := lockActor(ctx, t, actor)
		if err != nil {
			return err
		}
		if err := by.Seen(of.Version); err != nil {
			return err
		}
		list, err := OwnersOf(ctx, t.Conn, key)
		if err != nil {
			return err
		}
		if len(list) == 0 || list[0].Actor != actor {
			return fault.New(fault.NotFound, "not_found", "%s has no key %s", actor, keyID(key))
		}
		if changed = list[0].Live() || compromised && !list[0].Compromised; !changed {
			return t.Rollback(ctx)
		}
		b := &pgx.Batch{}
		b.Queue(`UPDATE postern.actor_key
			SET retired_at = coalesce(retired_at, $3::timestamptz, clock_timestamp()), compromised = compromised OR $2
			WHERE public_key = $1`, []byte(key), compromised, s.Clock())
		b.Queue(raiseVersion, actor)
		action := "retire_key"
		if compromised {
			action = "compromise_key"
		}
		s.AuditChange(b, by, action, "/actors/"+actor+"/keys/"+list[0].ID(), nil, nil)
		return t.Commit(ctx, b)
	})
	return changed, err
}
