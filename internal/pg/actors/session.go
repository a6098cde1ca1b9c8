package actors

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// SignedIn is who a session of the dashboard belongs to: the holder of a key, or an actor whom an identity provider
// has named, with the roles that it has now.
type SignedIn struct {
	Key   *UsedKey // nil: the session is of an actor
	Shown []byte   // the SHA-256 of the secret of the key

	Actor, Issuer, Subject string
	Roles                  map[int32]string // by id of the context
}

// Name is the actor as the audit and the owner of a thing name it.
func (w *SignedIn) Name() string {
	if w.Key != nil {
		return holder(w.Key.Prefix)
	}
	return w.Actor
}

// OpenSession keeps that the holder of a key is signed in to the dashboard, under the SHA-256 of a cookie. The secret
// of the key that was shown is remembered by its hash: a session ends with it.
func (s *Store) OpenSession(ctx context.Context, by db.By, k *UsedKey, keyHash, hash []byte, life time.Duration) error {
	by.Context, by.Actor = k.ContextID, holder(k.Prefix)
	return s.openSession(ctx, by, k.path(), life,
		`INSERT INTO postern.ui_session (created_at, expires_at, hash, key_id, key_hash)
		SELECT x.at, x.at + $2, $3, $4, $5
		FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS at) x`, hash, k.ID, keyHash)
}

// OpenActorSession keeps that an actor is signed in to the dashboard, whom an identity provider has named.
func (s *Store) OpenActorSession(ctx context.Context, by db.By, actor, issuer, subject string, hash []byte,
	life time.Duration) error {
	by.Context, by.Actor = s.Context(pg.System).ID, actor
	return s.openSession(ctx, by, "/actors/"+actor, life,
		`INSERT INTO postern.ui_session (created_at, expires_at, hash, actor_id, issuer, subject)
		SELECT x.at, x.at + $2, $3, $4, $5, $6
		FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS at) x`, hash, actor, issuer, subject)
}

// openSession writes the row of a session, and forgets some that are over.
func (s *Store) openSession(ctx context.Context, by db.By, object string, life time.Duration, insert string,
	args ...any) error {
	return s.Run(ctx, func(t *db.Txn) error {
		b := &pgx.Batch{}
		b.Queue(`DELETE FROM postern.ui_session
			WHERE hash IN (SELECT hash FROM postern.ui_session
				WHERE expires_at < coalesce($1::timestamptz, clock_timestamp())
				ORDER BY expires_at
				LIMIT 100
				FOR UPDATE SKIP LOCKED)`, s.Clock())
		b.Queue(insert, append([]any{s.Clock(), life}, args...)...)
		s.AuditChange(b, by, "sign_in", object, nil, nil)
		return t.Commit(ctx, b)
	})
}

// holder is how the audit names who holds the key of a prefix.
func holder(prefix string) string { return "key:" + prefix }

// Session looks up who is signed in under the SHA-256 of a cookie. nil: the session has ended; its key is revoked or
// has expired, or the secret with which it was opened holds no more; its actor is gone, is named by another subject, or
// has a role in no context any more.
func (s *Store) Session(ctx context.Context, hash []byte) (*SignedIn, error) {
	var prefix string
	var shown []byte
	who := &SignedIn{}
	err := s.Db(ctx).QueryRow(ctx, `
		SELECT coalesce(k.prefix, ''), u.key_hash, coalesce(a.actor_id, ''), coalesce(a.issuer, ''),
			coalesce(a.subject, '')
		FROM postern.ui_session u
		LEFT JOIN postern.api_key k ON k.key_id = u.key_id
		LEFT JOIN postern.actor a ON (a.actor_id, a.issuer, a.subject) = (u.actor_id, u.issuer, u.subject)
		WHERE u.hash = $1
		AND u.expires_at > coalesce($2::timestamptz, clock_timestamp())`, hash, s.Clock()).
		Scan(&prefix, &shown, &who.Actor, &who.Issuer, &who.Subject)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && cmp.Or(prefix, who.Actor) == "" {
		return nil, nil
	}
	if err != nil {
		return nil, db.Known(err)
	}
	if who.Actor != "" {
		if who.Roles, err = s.RolesOf(ctx, who.Actor); err != nil || len(who.Roles) == 0 {
			return nil, err
		}
		return who, nil
	}
	k, err := s.UseKey(ctx, prefix)
	if err != nil || k == nil || !k.Holds(shown) {
		return nil, err
	}
	return &SignedIn{Key: k, Shown: shown}, nil
}

// EndSession signs out.
func (s *Store) EndSession(ctx context.Context, by db.By, hash []byte) error {
	return s.Run(ctx, func(t *db.Txn) error {
		object := ""
		b := &pgx.Batch{}
		b.Queue(`WITH ended AS (DELETE FROM postern.ui_session
				WHERE hash = $1
				RETURNING key_id, actor_id)
			SELECT coalesce(k.context_id, $2), coalesce(k.prefix, ''), coalesce(e.actor_id, ''),
				coalesce('/api-keys/' || e.key_id, '/actors/' || e.actor_id)
			FROM ended e
			LEFT JOIN postern.api_key k USING (key_id)`,
			hash, s.Context(pg.System).ID).Query(func(rows pgx.Rows) error {
			var prefix, actor string
			_, err := pgx.ForEachRow(rows, []any{&by.Context, &prefix, &actor, &object}, func() error {
				if by.Actor = actor; prefix != "" {
					by.Actor = holder(prefix)
				}
				return nil
			})
			return err
		})
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if object == "" { // it had ended
			return t.Rollback(ctx)
		}
		b = &pgx.Batch{}
		s.AuditChange(b, by, "sign_out", object, nil, nil)
		return t.Commit(ctx, b)
	})
}

// Holds says whether a secret of the key with that hash is taken now.
func (k *UsedKey) Holds(hash []byte) bool {
	same := 0
	for _, one := range k.Hashes {
		same |= subtle.ConstantTimeCompare(one, hash)
	}
	return same != 0
}
