package actors

import (
	"context"
	"crypto/subtle"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg/db"
)

// OpenSession keeps that the holder of a key is signed in to the dashboard, under the SHA-256 of a cookie, and forgets
// some sessions that are over. The secret of the key that was shown is remembered by its hash: a session ends with it.
func (s *Store) OpenSession(ctx context.Context, by db.By, k *UsedKey, keyHash, hash []byte, life time.Duration) error {
	by.Context = k.ContextID
	return s.Run(ctx, func(t *db.Txn) error {
		b := &pgx.Batch{}
		b.Queue(`DELETE FROM postern.ui_session
			WHERE hash IN (SELECT hash FROM postern.ui_session
				WHERE expires_at < coalesce($1::timestamptz, clock_timestamp())
				ORDER BY expires_at
				LIMIT 100
				FOR UPDATE SKIP LOCKED)`, s.Clock())
		b.Queue(`INSERT INTO postern.ui_session (hash, key_id, key_hash, created_at, expires_at)
			SELECT $1, $2, $3, x.at, x.at + $4
			FROM (SELECT coalesce($5::timestamptz, clock_timestamp()) AS at) x`,
			hash, k.ID, keyHash, life, s.Clock())
		s.AuditChange(b, by, "sign_in", k.path(), nil, nil)
		return t.Commit(ctx, b)
	})
}

// Session looks up who is signed in under the SHA-256 of a cookie: nil if the session has ended, its key is revoked or
// has expired, or the secret with which it was opened holds no more.
func (s *Store) Session(ctx context.Context, hash []byte) (*UsedKey, error) {
	var prefix string
	var shown []byte
	err := s.Db(ctx).QueryRow(ctx, `
		SELECT k.prefix, u.key_hash
		FROM postern.ui_session u
		JOIN postern.api_key k USING (key_id)
		WHERE u.hash = $1
		AND u.expires_at > coalesce($2::timestamptz, clock_timestamp())`, hash, s.Clock()).Scan(&prefix, &shown)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, db.Known(err)
	}
	k, err := s.UseKey(ctx, prefix)
	if err != nil || k == nil || !k.Holds(shown) {
		return nil, err
	}
	return k, nil
}

// EndSession signs out.
func (s *Store) EndSession(ctx context.Context, hash []byte) error {
	_, err := s.Exec(ctx, `DELETE FROM postern.ui_session WHERE hash = $1`, hash)
	return err
}

// Holds says whether a secret of the key with that hash is taken now.
func (k *UsedKey) Holds(hash []byte) bool {
	return subtle.ConstantTimeCompare(k.Hash, hash)|subtle.ConstantTimeCompare(k.Previous, hash) != 0
}
