package actors

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Key is an API key, without its secret: of that only hashes exist.
type Key struct {
	ID            uuid.UUID
	ContextID     int32
	Prefix        string
	Name          string
	Role          string
	Only          []string // empty: it may all that its role may
	ExpiresAt     *time.Time
	PreviousUntil *time.Time // until then a secret from before a rotation holds too
	LastUsedAt    *time.Time
	CreatedBy     string
	CreatedAt     time.Time
	Version       int64
}

// keySettings is what the audit row keeps of a key.
type keySettings struct {
	Prefix    string     `json:"prefix"`
	Name      string     `json:"name"`
	Role      string     `json:"role"`
	Only      []string   `json:"only"`
	ExpiresAt *time.Time `json:"expires_at"`
}

func (k *Key) settings() any { return keySettings{k.Prefix, k.Name, k.Role, k.Only, k.ExpiresAt} }

func (k *Key) path() string { return "/api-keys/" + k.ID.String() }

const keySQL = `SELECT key_id, context_id, prefix, name, role, narrowed, expires_at,
	(SELECT max(o.until)
		FROM unnest(array_prepend(previous_until, older_until)) o(until)
		WHERE o.until > coalesce($1::timestamptz, clock_timestamp())), last_used_at, created_by, created_at, version
	FROM postern.api_key`

func (k *Key) dests() []any {
	return []any{&k.ID, &k.ContextID, &k.Prefix, &k.Name, &k.Role, &k.Only, &k.ExpiresAt, &k.PreviousUntil, &k.LastUsedAt, &k.CreatedBy, &k.CreatedAt, &k.Version}
}

func scanKey(row pgx.CollectableRow) (*Key, error) {
	k := &Key{}
	return k, row.Scan(k.dests()...)
}

// Keys lists up to limit keys of a context, the newest first: those before an id, all if it is zero.
func (s *Store) Keys(ctx context.Context, contextID int32, before uuid.UUID, limit int) ([]*Key, error) {
	if before == uuid.Nil {
		before = uuid.Max
	}
	rows, err := s.Db(ctx).Query(ctx, keySQL+` WHERE context_id = $2 AND key_id < $3 ORDER BY key_id DESC LIMIT $4`, s.Clock(), contextID, before, limit)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanKey)
	return list, db.Known(err)
}

// Key returns one key of a context, or NotFound.
func (s *Store) Key(ctx context.Context, contextID int32, id uuid.UUID) (*Key, error) {
	rows, err := s.Db(ctx).Query(ctx, keySQL+` WHERE context_id = $2 AND key_id = $3`, s.Clock(), contextID, id)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanKey)
	if err == nil && len(list) == 0 {
		return nil, noKey(id)
	}
	if err != nil {
		return nil, db.Known(err)
	}
	return list[0], nil
}

func noKey(id uuid.UUID) error { return fault.New(fault.NotFound, "not_found", "no API key %s", id) }

// CreateKey stores a key of by.Context under the hash of its secret. replay says that the same request was answered
// before. id is then that of the first key, and its secret cannot be shown again.
func (s *Store) CreateKey(ctx context.Context, by db.By, k Key, hash []byte, once db.Once) (id uuid.UUID, replay bool, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		id, replay = k.ID, false
		if err := by.Admin(ctx, t, by.Context); err != nil {
			return err
		}
		first, err := t.Replayed(ctx, once, `SELECT key_id::text, request_hash FROM postern.api_key WHERE context_id = $1 AND request_key = $2`, by.Context, once.Key)
		if err != nil {
			return err
		}
		if first != "" {
			replay = true
			if id, err = uuid.Parse(first); err != nil {
				return err
			}
			return t.Rollback(ctx)
		}
		b := &pgx.Batch{}
		b.Queue(`INSERT INTO postern.api_key (key_id, context_id, prefix, name, role, narrowed, hash, expires_at, created_by, created_at, request_key, request_hash)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, coalesce($10::timestamptz, clock_timestamp()), $11, $12)`,
			k.ID, by.Context, k.Prefix, k.Name, k.Role, k.Only, hash, k.ExpiresAt, by.Actor, s.Clock(), db.Nullable(once.Key), once.Hash)
		s.AuditChange(b, by, "create", k.path(), nil, k.settings())
		return t.Commit(ctx, b)
	})
	return id, replay, err
}

// RotateKey gives a key another secret; the one before holds for the overlap. Those of rotations before hold as long as
// was said then, unless the overlap is 0, which ends all: where the answer of a rotation was lost and it is made again,
// clients have one of these. Conflict: too many hold.
func (s *Store) RotateKey(ctx context.Context, by db.By, id uuid.UUID, hash []byte, overlap time.Duration) error {
	return s.changeKey(ctx, by, id, "rotate", func(b *pgx.Batch, k *Key) any {
		b.Queue(`UPDATE postern.api_key k
			SET hash = $4, previous_hash = k.hash, previous_until = x.now + $3::interval, version = k.version + 1,
				(older_hash, older_until) = (
					SELECT coalesce(array_agg(o.hash), '{}'), coalesce(array_agg(o.until), '{}')
					FROM unnest(array_prepend(k.previous_hash, k.older_hash),
						array_prepend(k.previous_until, k.older_until)) o(hash, until)
					WHERE o.until > x.now AND $3::interval > '0')
			FROM (SELECT coalesce($2::timestamptz, clock_timestamp()) AS now) x
			WHERE k.key_id = $1`, id, s.Clock(), overlap, hash)
		return k.settings()
	})
}

// RemoveKey revokes a key. Processes that looked it up a moment ago may honour it for a second more.
func (s *Store) RemoveKey(ctx context.Context, by db.By, id uuid.UUID) error {
	return s.changeKey(ctx, by, id, "delete", func(b *pgx.Batch, _ *Key) any {
		b.Queue(`DELETE FROM postern.api_key WHERE key_id = $1`, id)
		return nil
	})
}

func (s *Store) changeKey(ctx context.Context, by db.By, id uuid.UUID, action string, change func(*pgx.Batch, *Key) any) error {
	return s.Run(ctx, func(t *db.Txn) error {
		if err := by.Admin(ctx, t, by.Context); err != nil {
			return err
		}
		var k *Key
		b := &pgx.Batch{}
		b.Queue(keySQL+` WHERE context_id = $2 AND key_id = $3 FOR UPDATE`, s.Clock(), by.Context, id).Query(func(rows pgx.Rows) error {
			list, err := pgx.CollectRows(rows, scanKey)
			if len(list) > 0 {
				k = list[0]
			}
			return err
		})
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if k == nil {
			return noKey(id)
		}
		if err := by.Seen(k.Version); err != nil {
			return err
		}
		b = &pgx.Batch{}
		before := k.settings()
		s.AuditChange(b, by, action, k.path(), before, change(b, k))
		return t.Commit(ctx, b)
	})
}

// UsedKey is a key that somebody shows, with the hashes that hold now.
type UsedKey struct {
	Key
	Hashes [][]byte    // the present one first
	Stale  bool        // that it is used was not written for a minute
	Noted  atomic.Bool // and has been since
}

// UseKey looks up the key of a prefix: nil if there is none, if it has expired, or if its context is gone.
func (s *Store) UseKey(ctx context.Context, prefix string) (*UsedKey, error) {
	k := &UsedKey{}
	err := s.Db(ctx).QueryRow(ctx, `SELECT k.*, a.hash || ARRAY(SELECT o.hash
				FROM unnest(array_prepend(a.previous_hash, a.older_hash),
					array_prepend(a.previous_until, a.older_until)) o(hash, until)
				WHERE o.until > coalesce($1::timestamptz, clock_timestamp())),
			coalesce(a.last_used_at < coalesce($1::timestamptz, clock_timestamp()) - interval '1 min', true)
		FROM (`+keySQL+` WHERE prefix = $2) k JOIN postern.api_key a USING (key_id) JOIN postern.context c ON c.context_id = k.context_id
		WHERE c.removed_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > coalesce($1::timestamptz, clock_timestamp()))`,
		s.Clock(), prefix).Scan(append(k.dests(), &k.Hashes, &k.Stale)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, db.Known(err)
	}
	return k, nil
}

// NoteUse writes when a key was used last, to the minute: of several processes that see it stale, one writes.
func (s *Store) NoteUse(ctx context.Context, k *UsedKey) error {
	_, err := s.Exec(ctx, `UPDATE postern.api_key SET last_used_at = coalesce($2::timestamptz, clock_timestamp()) WHERE key_id = $1
		AND (last_used_at IS NULL OR last_used_at < coalesce($2::timestamptz, clock_timestamp()) - interval '1 min')`, k.ID, s.Clock())
	return err
}

// HasAdmin says whether anybody is an admin of system: a key that holds, or a member.
func (s *Store) HasAdmin(ctx context.Context) (any bool, err error) {
	err = s.Db(ctx).QueryRow(ctx, `SELECT EXISTS (SELECT FROM postern.api_key WHERE context_id = $1 AND role = 'admin'
			AND (expires_at IS NULL OR expires_at > coalesce($2::timestamptz, clock_timestamp())))
		OR EXISTS (SELECT FROM postern.member WHERE context_id = $1 AND role = 'admin')`, s.Context(pg.System).ID, s.Clock()).Scan(&any)
	return any, db.Known(err)
}

// BootstrapKey stores the first admin key of system, unless that context has an admin key that holds. Of
// several processes that start at once with the same key, one stores it.
func (s *Store) BootstrapKey(ctx context.Context, prefix string, hash []byte) (stored bool, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return false, err
	}
	by := db.By{Context: s.Context(pg.System).ID, Actor: "bootstrap", Via: "start"}
	k := Key{ID: id, Prefix: prefix, Name: "bootstrap", Role: pg.Admin, Only: []string{}}
	err = s.Run(ctx, func(t *db.Txn) error {
		b := &pgx.Batch{}
		b.Queue(`SELECT FROM postern.context WHERE context_id = $1 FOR UPDATE`, by.Context)
		b.Queue(`INSERT INTO postern.api_key (key_id, context_id, prefix, name, role, hash, created_by) SELECT $1, $2, $3, $4, $5, $6, $7
			WHERE NOT EXISTS (SELECT FROM postern.api_key WHERE context_id = $2 AND role = 'admin'
				AND (expires_at IS NULL OR expires_at > coalesce($8::timestamptz, clock_timestamp()))) RETURNING true`,
			id, by.Context, prefix, k.Name, k.Role, hash, by.Actor, s.Clock()).Query(func(rows pgx.Rows) error {
			stored = rows.Next()
			rows.Close()
			return rows.Err()
		})
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if !stored {
			return t.Rollback(ctx)
		}
		b = &pgx.Batch{}
		s.AuditChange(b, by, "create", k.path(), nil, k.settings())
		return t.Commit(ctx, b)
	})
	return stored, err
}
