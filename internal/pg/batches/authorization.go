package batches

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/processor"
)

// Authorization is one with what has become of it (S4.11).
type Authorization struct {
	processor.Authorization
	processor.Use
	Version   int64
	CreatedAt time.Time
	id        int32
	domain    string
}

// $2 is the actor whose calls are counted.
const authorizationSelect = `SELECT a.authorization_id, a.domain, a.settings, a.enabled, a.ends_at, a.ends_at_height, a.running,
		coalesce((SELECT c.spent FROM postern.batch_call c WHERE c.authorization_id = a.authorization_id AND c.actor = $2), 0), a.version, a.created_at
	FROM postern.batch_authorization a WHERE a.context_id = $1 AND a.removed_at IS NULL`

func scanAuthorization(row pgx.CollectableRow) (*Authorization, error) {
	a := &Authorization{}
	return a, row.Scan(&a.id, &a.domain, &a.Authorization, &a.Enabled, &a.EndsAt, &a.EndsAtHeight, &a.Running,
		&a.Spent, &a.Version, &a.CreatedAt)
}

// Authorizations lists up to limit authorizations of a context by label, those after a given one, with the calls
// that an actor has spent.
func (s *Store) Authorizations(ctx context.Context, contextID int32, actor,
	after string, limit int) ([]*Authorization, error) {
	rows, err := s.Db(ctx).Query(ctx, authorizationSelect+` AND a.label > $3 ORDER BY a.label LIMIT $4`,
		contextID, actor, after, limit)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanAuthorization)
	return list, db.Known(err)
}

// Authorization returns one authorization with the calls that an actor has spent, or NotFound.
func (s *Store) Authorization(ctx context.Context, contextID int32, label, actor string) (*Authorization, error) {
	rows, err := s.Db(ctx).Query(ctx, authorizationSelect+` AND a.label = $3`, contextID, actor, label)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanAuthorization)
	if err != nil {
		return nil, db.Known(err)
	}
	if len(list) == 0 {
		return nil, noAuthorization(label)
	}
	return list[0], nil
}

func noAuthorization(label string) error {
	return fault.New(fault.NotFound, "not_found", "Authorization with label %s does not exist", fault.Clip(label))
}

func labelTaken(label string) error {
	return fault.New(fault.Conflict, "in_use", "Authorization with label %s already exists", label)
}

const authorizationLock = `SELECT version, removed_at IS NOT NULL FROM postern.batch_authorization WHERE context_id = $1 AND label = $2 FOR UPDATE`

// PutAuthorization creates an authorization or, with its version, replaces it: without a version, a label that is taken
// is refused (Conflict "in_use"). The calls that were counted stay counted, and its duration begins anew. Its end is
// reckoned from the height of its processor, read before the lock: a height only rises, so that the authorization ends
// no later than it says.
func (s *Store) PutAuthorization(ctx context.Context, by db.By, a processor.Authorization,
	version int64) (created bool, err error) {
	return s.writeAuthorization(ctx, by, a, version, true)
}

// ReviseAuthorization is PutAuthorization for a change that leaves alone how long it holds.
func (s *Store) ReviseAuthorization(ctx context.Context, by db.By, a processor.Authorization, version int64) error {
	_, err := s.writeAuthorization(ctx, by, a, version, false)
	return err
}

func (s *Store) writeAuthorization(ctx context.Context, by db.By, a processor.Authorization,
	version int64, anew bool) (created bool, err error) {
	if err := a.Validate(); err != nil {
		return false, err
	}
	p, err := s.Processor(ctx, by.Context, a.Actions.Domain())
	if err != nil {
		return false, fault.At("/actions_config", "domain %q is no processor: PUT /processors/%[1]s first",
			fault.Clip(a.Actions.Domain())).Because(err)
	}
	if err := s.mayExecute(ctx, by.Context, a.Actions); err != nil {
		return false, err
	}
	err = s.Run(ctx, func(t *db.Txn) error {
		created, err = t.LockVersion(ctx, version, authorizationLock, by.Context, a.Label)
		if err != nil {
			return err
		}
		if !created && version == 0 {
			return labelTaken(a.Label)
		}
		var now time.Time
		taken := false
		b := &pgx.Batch{}
		s.ReadNow(b, &now)
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		at, height := a.Ends(now, p.Height)
		settings, err := json.Marshal(a)
		if err != nil {
			return err
		}
		b = &pgx.Batch{}
		b.Queue(`INSERT INTO postern.batch_authorization AS a (context_id, label, domain, settings, ends_at, ends_at_height, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7)
			ON CONFLICT (context_id, label) DO UPDATE SET domain = excluded.domain, settings = excluded.settings,
				ends_at = CASE WHEN $9 THEN excluded.ends_at ELSE a.ends_at END, ends_at_height = CASE WHEN $9 THEN excluded.ends_at_height ELSE a.ends_at_height END, enabled = a.enabled OR a.removed_at IS NOT NULL, removed_at = NULL, version = a.version + 1
			WHERE a.removed_at IS NOT NULL OR NOT $8 RETURNING authorization_id`,
			by.Context, a.Label, p.Name, string(settings), at, height, now, created, anew ||
				created).Query(func(rows pgx.Rows) error {
			ids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
			taken = len(ids) == 0
			return err
		})
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if taken { // somebody else made it between our look and our insert, which waited for it
			return labelTaken(a.Label)
		}
		b = &pgx.Batch{}
		s.AuditIn(b, by, "put", "/authorizations/"+a.Label)
		return t.Commit(ctx, b)
	})
	return created, err
}

// EnableAuthorization lets batches of an authorization be sent, or refuses them; those that were sent go on.
func (s *Store) EnableAuthorization(ctx context.Context, by db.By, label string, enabled bool) (pg.LeverResult, error) {
	action := "disable"
	if enabled {
		action = "enable"
	}
	return s.SetFlag(ctx, by, action, "/authorizations/"+label, `UPDATE postern.batch_authorization SET enabled = $3, version = version + 1
		WHERE context_id = $1 AND label = $2 AND removed_at IS NULL AND enabled <> $3`, authorizationLock, label, enabled)
}

// RemoveAuthorization removes an authorization. Conflict "in_use": a batch under it has not ended.
func (s *Store) RemoveAuthorization(ctx context.Context, by db.By, label string) error {
	return s.Run(ctx, func(t *db.Txn) error {
		missing, err := t.LockVersion(ctx, 0, authorizationLock, by.Context, label)
		if err != nil {
			return err
		}
		if missing {
			return noAuthorization(label)
		}
		if err := by.Seen(t.Version); err != nil {
			return err
		}
		b := &pgx.Batch{}
		var running int
		b.Queue(`UPDATE postern.batch_authorization SET removed_at = coalesce($3::timestamptz, clock_timestamp()), version = version + 1
			WHERE context_id = $1 AND label = $2 RETURNING running`, by.Context, label, s.Clock()).
			QueryRow(func(row pgx.Row) error { return row.Scan(&running) })
		b.Queue(`DELETE FROM postern.batch_call c USING postern.batch_authorization a
			WHERE a.context_id = $1 AND a.label = $2 AND c.authorization_id = a.authorization_id`, by.Context, label) // one of that name begins anew
		s.AuditIn(b, by, "delete", "/authorizations/"+label)
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if running > 0 {
			return fault.New(fault.Conflict, "in_use", "authorization %q has %s under way", fault.Clip(label),
				fault.Many(running, "batch"))
		}
		return t.Commit(ctx, &pgx.Batch{})
	})
}

// authorization reads an authorization behind the lock of its processor, and locks it: its counts of calls change under
// both locks. The processor comes first in the order of locks; calls of configuration lock the authorization alone.
func (h *heldProcessor) authorization(ctx context.Context, t *db.Txn, contextID int32,
	label, actor string) (a *Authorization, err error) {
	b := &pgx.Batch{}
	b.Queue(`SELECT FROM postern.batch_authorization WHERE context_id = $1 AND label = $2 FOR UPDATE`, contextID, label)
	b.Queue(authorizationSelect+` AND a.label = $3 AND a.domain = $4`, contextID, actor,
		label, h.Name).Query(func(rows pgx.Rows) error {
		list, err := pgx.CollectRows(rows, scanAuthorization)
		if err == nil && len(list) > 0 {
			a = list[0]
		}
		return err
	})
	if err = t.Send(ctx, b); err == nil && a == nil {
		err = noAuthorization(label)
	}
	return a, err
}

// Send puts a batch of an authorization at the back of its line, or says which rule forbids it (S4.12). Everything is
// one commit: the batch, the count of what runs, and the call that is held for it. Two that send at once come one
// after the other by the processor's lock, and so the last place below a limit is given once. The same request again is
// answered with the batch that it made, and counts nothing. Of a remote domain it may be sent again until ttl is over.
func (s *Store) Send(ctx context.Context, by db.By, label string, messages []processor.Message,
	ttl time.Duration, once db.Once) (v *Batch, err error) {
	seen, err := s.Authorization(ctx, by.Context, label, by.Actor)
	if err != nil {
		return nil, err
	}
	err = s.onProcessor(ctx, by.Context, seen.domain, func(t *db.Txn, h *heldProcessor) error {
		a, err := h.authorization(ctx, t, by.Context, label, by.Actor)
		if err != nil {
			return err
		}
		if v, err = requested(ctx, t, by.Context, once); err != nil || v != nil {
			return err
		}
		if err := by.Seen(a.Version); err != nil {
			return err
		}
		if err := a.MaySend(by.Actor, messages, a.Use, h.facts()); err != nil {
			return err
		}
		if err := s.accepts(by.Context, a.Actions); err != nil {
			return err
		}
		v = &Batch{once: once, Initiator: by.Actor, Label: label, authorizationID: a.id, held: a.Limited(),
			Batch: processor.Batch{Priority: a.Priority, Actions: a.Actions, Messages: messages}}
		v.Expiration = a.Actions.Expires(h.now)
		if ttl > 0 {
			at := h.now.Add(ttl)
			v.TTL = &at
		}
		b := &pgx.Batch{}
		if err := h.begin(ctx, t, b, v, processor.Enqueued, processor.Spot{}, by); err != nil {
			return err
		}
		h.saveLines(b)
		return t.Commit(ctx, b)
	})
	if err != nil {
		return nil, err
	}
	return v, nil
}
