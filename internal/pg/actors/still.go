package actors

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// RoleSQL is the role of an actor $1 in a context $2, where $3 is the context system and $4 a time: 0 for none, then 1
// to 3. An API key is an actor, too.
const RoleSQL = `SELECT coalesce(max(CASE x.role WHEN 'admin' THEN 3 WHEN 'executor' THEN 2 ELSE 1 END), 0)
	FROM (
		SELECT r.context_id, r.role FROM postern.member r WHERE r.actor_id = $1
		UNION ALL
		SELECT k.context_id, k.role
		FROM postern.api_key k
		WHERE k.prefix = substr($1, 5)
			AND starts_with($1, 'key:')
			AND (k.expires_at IS NULL OR k.expires_at > coalesce($4::timestamptz, clock_timestamp()))) x
	WHERE x.context_id = $2 OR x.context_id = $3 AND x.role = 'admin'`

// admin is what RoleSQL says of one.
const admin = 3

// holdsSQL says whether $2 still lets an actor $1 in at a time $3: the SHA-256 of the secret of its API key, one of its
// public keys, or what Identity makes.
const holdsSQL = `SELECT EXISTS (SELECT FROM postern.api_key k
		WHERE k.prefix = substr($1, 5) AND starts_with($1, 'key:')
			AND (k.hash = $2
				OR EXISTS (SELECT FROM unnest(array_prepend(k.previous_hash, k.older_hash),
						array_prepend(k.previous_until, k.older_until)) o(hash, until)
					WHERE o.hash = $2 AND o.until > coalesce($3::timestamptz, clock_timestamp()))))
	OR EXISTS (SELECT FROM postern.actor_key x
		WHERE x.public_key = $2 AND x.actor_id = $1 AND x.retired_at IS NULL)
	OR EXISTS (SELECT FROM postern.actor a
		WHERE a.actor_id = $1 AND convert_to(a.issuer || ' ' || a.subject, 'UTF8') = $2)`

// Identity is whom a provider has named, as holdsSQL compares it.
func Identity(issuer, subject string) []byte { return []byte(issuer + " " + subject) }

// Still returns what db.By asks of an actor whom shown has let in: Forbidden unauthenticated where that does not hold
// any more, Forbidden where the actor is an admin neither of the context nor of system. For context 0 its caller has
// locked the row of the actor.
//
// A request is let in by what was read before it waited for a lock, and a process may have read that a second ago. The
// rows are locked first, and each statement sees what was committed when it begins: a change of members (which locks
// the row of their context), of an actor or of an API key that came before is seen, and one that comes after waits for
// this commit, so that its maker then sees what was given here. Rows of contexts are locked first here as
// elsewhere; where two of these wait for one another all the same, PostgreSQL ends one, which runs again.
func (s *Store) Still(actor string, shown []byte) func(ctx context.Context, t *db.Txn, contextID int32) error {
	return func(ctx context.Context, t *db.Txn, contextID int32) error {
		role, holds := admin, false
		b := &pgx.Batch{}
		if contextID != 0 {
			system := s.Context(pg.System).ID
			b.Queue(`SELECT FROM postern.context WHERE context_id IN ($1, $2) ORDER BY context_id FOR KEY SHARE`,
				contextID, system)
			b.Queue(`SELECT FROM postern.actor WHERE actor_id = $1 FOR KEY SHARE`, actor)
			b.Queue(`SELECT FROM postern.api_key
				WHERE prefix = substr($1, 5) AND starts_with($1, 'key:')
				FOR KEY SHARE`, actor)
			b.Queue(RoleSQL, actor, contextID, system, s.Clock()).
				QueryRow(func(row pgx.Row) error { return row.Scan(&role) })
		}
		b.Queue(holdsSQL, actor, shown, s.Clock()).QueryRow(func(row pgx.Row) error { return row.Scan(&holds) })
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		switch {
		case !holds:
			return fault.New(fault.Forbidden, "unauthenticated", "the credential of %q does not hold any more",
				fault.Clip(actor))
		case role < admin:
			return fault.New(fault.Forbidden, "forbidden", "%q is no admin any more", fault.Clip(actor))
		}
		return nil
	}
}
