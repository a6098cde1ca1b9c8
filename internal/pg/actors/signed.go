package actors

import (
	"context"
	"crypto/ed25519"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Signed is a signature of a request that holds.
type Signed struct {
	Key     ed25519.PublicKey
	Nonce   string
	Expires time.Time
}

// Believing is what a process asks before it believes the signatures of a request.
type Believing struct {
	Now    time.Time
	After  time.Time    // none holds that was made before; zero: any
	Owners []*PublicKey // of the keys that name somebody
}

// Believing looks up whom public keys name, by the clock of the database, which all processes share.
func (s *Store) Believing(ctx context.Context, keys ...[]byte) (v Believing, err error) {
	b := &pgx.Batch{}
	b.Queue(`SELECT coalesce($1::timestamptz, clock_timestamp()), coalesce(signed_after, '-infinity') > '-infinity',
			coalesce(signed_after, 'epoch') FROM postern.store`, s.Clock()).QueryRow(func(row pgx.Row) error {
		var set bool
		if err := row.Scan(&v.Now, &set, &v.After); err != nil || set {
			return err
		}
		v.After = time.Time{}
		return nil
	})
	b.Queue(publicKeySQL+` WHERE public_key = ANY ($1)`, keys).Query(func(rows pgx.Rows) (err error) {
		v.Owners, err = pgx.CollectRows(rows, scanPublicKey)
		return err
	})
	return v, db.Known(s.Db(ctx).SendBatch(ctx, b).Close())
}

// kept is how much longer than its signature a nonce is kept, for a clock of the database that falls behind.
const kept = 10 * time.Minute

// useSQL uses a nonce once, over all processes: of two statements with the same one, the second waits for the commit
// of the first and inserts nothing. Each also takes away a few whose signatures hold no more, so that the table holds
// those of a few minutes; what another statement takes away is skipped.
const useSQL = `WITH old AS MATERIALIZED (
		SELECT public_key, nonce
		FROM postern.nonce
		WHERE expires_at < coalesce($4::timestamptz, clock_timestamp())
		ORDER BY expires_at
		LIMIT 4
		FOR UPDATE SKIP LOCKED),
	forgotten AS (
		DELETE FROM postern.nonce n
		USING old o
		WHERE (n.public_key, n.nonce) = (o.public_key, o.nonce))
	INSERT INTO postern.nonce (public_key, nonce, expires_at)
	VALUES ($1, $2, $3)
	ON CONFLICT ON CONSTRAINT one_use_per_nonce DO NOTHING`

// Use uses the nonce of a signature that was verified. Forbidden "replayed_signature": it was used before, here or at
// another process.
func (s *Store) Use(ctx context.Context, sig Signed) error {
	tag, err := s.Exec(ctx, useSQL, []byte(sig.Key), sig.Nonce, sig.Expires.Add(kept), s.Clock())
	if err == nil && tag.RowsAffected() == 0 {
		return replayed()
	}
	return err
}

// use is Use in a commit that does more, and has begun.
func (s *Store) use(ctx context.Context, t *db.Txn, sig Signed) error {
	b := &pgx.Batch{}
	used := b.Queue(useSQL, []byte(sig.Key), sig.Nonce, sig.Expires.Add(kept), s.Clock())
	used.Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() == 0 {
			return replayed()
		}
		return nil
	})
	return t.Send(ctx, b)
}

func replayed() error {
	return fault.New(fault.Forbidden, "replayed_signature",
		"the nonce of this signature was used before: sign each request anew, with a nonce that you draw")
}

// Installation is the id of this installation.
func (s *Store) Installation(ctx context.Context) (id uuid.UUID, err error) {
	err = s.Db(ctx).QueryRow(ctx, `SELECT installation FROM postern.store`).Scan(&id)
	return id, db.Known(err)
}
