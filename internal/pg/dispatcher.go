package pg

import (
	"context"
	"encoding/json"
	"net/url"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	pgdb "github.com/postern-dev/postern/internal/pg/db"
)

// ReadDispatchers reads dispatchers: of one context unless 0, of one type unless "".
func (s *Store) ReadDispatchers(ctx context.Context, db pgdb.Querier, contextID int32, typ string) ([]*Dispatcher, error) {
	rows, err := db.Query(ctx, dispatchersSQL, contextID, typ)
	if err != nil {
		return nil, pgdb.Known(err)
	}
	list, err := scanDispatchers(rows)
	return list, pgdb.Known(err)
}

const dispatchersSQL = `SELECT d.dispatcher_id, d.context_id, d.type, d.settings, coalesce(d.pool_id, 0), d.paused, d.draining,
		d.removed_at IS NOT NULL, d.gate_failures, d.gate_until, d.gate_reason,
		d.gate_probing, d.gate_since, d.gate_node, d.version, d.created_at, x.secret
	FROM postern.dispatcher d LEFT JOIN postern.dispatcher_secret x USING (dispatcher_id) WHERE ($1 = 0 OR d.context_id = $1) AND ($2 = '' OR d.type = $2) ORDER BY d.type`

func scanDispatchers(rows pgx.Rows) (list []*Dispatcher, err error) {
	defer rows.Close()
	for rows.Next() {
		d := &Dispatcher{}
		var typ string
		var settings, secret []byte
		if err := rows.Scan(&d.ID, &d.ContextID, &typ, &settings, &d.PoolID, &d.Paused, &d.Draining, &d.Removed, &d.Failures, &d.GateUntil, &d.GateWhy,
			&d.GateProbing, &d.GateSince, &d.GateNode, &d.Version, &d.CreatedAt, &secret); err != nil {
			return nil, err
		}
		d.Dispatcher = outbox.DefaultDispatcher()
		if err := json.Unmarshal(settings, &d.Dispatcher); err != nil {
			return nil, err
		}
		d.Type, d.Secret = typ, secret
		list = append(list, d)
	}
	return list, rows.Err()
}

// Dispatchers lists the dispatchers of a context by type, without removed ones.
func (s *Store) Dispatchers(ctx context.Context, contextID int32) ([]*Dispatcher, error) {
	list, err := s.ReadDispatchers(ctx, s.Db(ctx), contextID, "")
	kept := []*Dispatcher{}
	for _, d := range list {
		if !d.Removed {
			kept = append(kept, d)
		}
	}
	return kept, err
}

// Dispatcher returns one dispatcher as the database has it now, or NotFound.
func (s *Store) Dispatcher(ctx context.Context, contextID int32, typ string) (*Dispatcher, error) {
	list, err := s.ReadDispatchers(ctx, s.Db(ctx), contextID, typ)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 || list[0].Removed {
		return nil, fault.New(fault.NotFound, "not_found", "no dispatcher for type %q", fault.Clip(typ))
	}
	return list[0], nil
}

// PutDispatcher creates or replaces a dispatcher. A version other than 0 must be the present one. Relane moves queues
// that wait in lanes that no longer fit.
func (s *Store) PutDispatcher(ctx context.Context, by pgdb.By, d outbox.Dispatcher, version int64) (created bool, err error) {
	settings, err := json.Marshal(d)
	if err != nil {
		return false, err
	}
	err = s.Run(ctx, func(t *pgdb.Txn) error {
		created, err = t.LockVersion(ctx, version, `SELECT version, removed_at IS NOT NULL FROM postern.dispatcher
			WHERE context_id = $1 AND type = $2 FOR UPDATE`, by.Context, d.Type)
		if err != nil {
			return err
		}
		for _, fits := range s.fits { // also of one that was removed: its domains stay
			if err := fits(ctx, t, by.Context, d); err != nil {
				return err
			}
		}
		b := &pgx.Batch{}
		if d.Pool != "" {
			s.MakePool(b, by.Context, d.Pool)
		}
		b.Queue(`INSERT INTO postern.dispatcher (context_id, type, settings, pool_id)
			VALUES ($1, $2, $3::text::jsonb, (SELECT pool_id FROM postern.pool WHERE context_id = $1 AND name = $4))
			ON CONFLICT (context_id, type) DO UPDATE SET settings = excluded.settings, pool_id = excluded.pool_id, removed_at = NULL,
				gate_until = NULL, gate_failures = 0, gate_reason = '',
				gate_probing = false, gate_since = NULL, gate_node = '', version = dispatcher.version + 1`,
			by.Context, d.Type, string(settings), d.Pool)
		if d.Secret != nil || created { // one that was removed is not this one
			b.Queue(`DELETE FROM postern.dispatcher_secret x USING postern.dispatcher d
				WHERE d.dispatcher_id = x.dispatcher_id AND (d.context_id, d.type) = ($1, $2)`, by.Context, d.Type)
		}
		if len(d.Secret) > 0 {
			b.Queue(`INSERT INTO postern.dispatcher_secret (dispatcher_id, secret)
				SELECT dispatcher_id, $3 FROM postern.dispatcher WHERE (context_id, type) = ($1, $2)`, by.Context, d.Type, d.Secret)
		}
		s.AuditIn(b, by, "put", "/dispatchers/"+d.Type)
		return t.Commit(ctx, b)
	})
	if err != nil {
		return false, err
	}
	return created, s.Reconfigured(ctx)
}

type judges []func(context.Context, *pgdb.Txn, int32, outbox.Dispatcher) error

// Judges registers what looks at each change of a dispatcher behind its lock, and may refuse it, before anything runs.
func (s *Store) Judges(fits func(context.Context, *pgdb.Txn, int32, outbox.Dispatcher) error) {
	s.fits = append(s.fits, fits)
}

// PauseDispatcher stops or resumes dispatching a type, and ends a drain. Calls that are out end; queues stay in the
// lanes.
func (s *Store) PauseDispatcher(ctx context.Context, by pgdb.By, typ string, paused bool) (LeverResult, error) {
	return s.SetFlag(ctx, by, Verb(paused), "/dispatchers/"+typ, `UPDATE postern.dispatcher SET paused = $3, draining = draining AND $3, version = version + 1
		WHERE context_id = $1 AND type = $2 AND removed_at IS NULL AND (paused <> $3 OR draining AND NOT $3)`, lockDispatcher, typ, paused)
}

const lockDispatcher = `SELECT version, removed_at IS NOT NULL FROM postern.dispatcher WHERE context_id = $1 AND type = $2 FOR UPDATE`

// RemoveDispatcher removes a type: nothing more is accepted for it, and what waits stays in its closed lanes without
// taking a sender (S2.14). Unless forced it is refused while anything of it waits at the head of a queue. Its secret
// stays until the type is put anew: hooks of what has ended, and calls that are out, are signed.
func (s *Store) RemoveDispatcher(ctx context.Context, by pgdb.By, typ string, force bool) error {
	err := s.Run(ctx, func(t *pgdb.Txn) error {
		missing, err := t.LockVersion(ctx, 0, `SELECT version, removed_at IS NOT NULL FROM postern.dispatcher WHERE context_id = $1 AND type = $2 FOR UPDATE`, by.Context, typ)
		if err != nil {
			return err
		}
		if missing {
			return fault.New(fault.NotFound, "not_found", "no dispatcher for type %q", fault.Clip(typ))
		}
		if err := by.Seen(t.Version); err != nil {
			return err
		}
		var busy bool
		b := &pgx.Batch{}
		// A queue keeps the lane of its head whatever the phase, also where nothing stands in the lane: paused,
		// suspended, held by a dependency or until a time, in flight. One pass over the queues, for a rare call.
		b.Queue(`SELECT EXISTS (SELECT FROM postern.queue q WHERE q.phase <> 'IDLE' AND q.context_id = $1 AND q.lane = ANY (ARRAY(SELECT l.lane_id
			FROM postern.lane l JOIN postern.dispatcher d USING (dispatcher_id) WHERE d.context_id = $1 AND d.type = $2)))`, by.Context, typ).
			QueryRow(func(row pgx.Row) error { return row.Scan(&busy) })
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if busy && !force {
			return fault.New(fault.Conflict, "in_use",
				"transactions of type %s wait or are out: let them end first, or remove it all the same with "+
					"DELETE /dispatchers/%s?force=true (they then wait until the type comes back)",
				typ, url.PathEscape(typ))
		}
		b = &pgx.Batch{}
		b.Queue(`UPDATE postern.dispatcher SET removed_at = clock_timestamp(), paused = false, draining = false, version = version + 1
			WHERE context_id = $1 AND type = $2`, by.Context, typ)
		s.AuditIn(b, by, "delete", "/dispatchers/"+typ)
		return t.Commit(ctx, b)
	})
	if err != nil {
		return err
	}
	return s.Reconfigured(ctx)
}

// Verb is the name of the lever that pauses or resumes, as the audit row has it.
func Verb(paused bool) string {
	if paused {
		return "pause"
	}
	return "resume"
}

// SetFlag runs an update of one named row, with its audit row; zero rows mean that it was so already, or
// that there is no such row.
func (s *Store) SetFlag(ctx context.Context, by pgdb.By, action, object, update, exists, name string, value any) (r LeverResult, err error) {
	err = s.Run(ctx, func(t *pgdb.Txn) error {
		missing, err := t.LockVersion(ctx, 0, exists, by.Context, name)
		if err != nil {
			return err
		}
		if missing {
			return fault.New(fault.NotFound, "not_found", "there is no %s", object)
		}
		if err := by.Seen(t.Version); err != nil {
			return err
		}
		tag, err := t.Conn.Exec(ctx, update, by.Context, name, value)
		if err != nil {
			return err
		}
		r.Changed = tag.RowsAffected() > 0
		b := &pgx.Batch{}
		s.AuditIn(b, by, action, object)
		return t.Commit(ctx, b)
	})
	if err != nil {
		return r, err
	}
	return r, s.Reconfigured(ctx)
}

// Reconfigured makes a change of the configuration known here at once; others read it within a second. A change that is
// a part of a larger commit cannot be read yet: the caller who makes the commit calls this behind it.
func (s *Store) Reconfigured(ctx context.Context) error {
	if pgdb.JointOf(ctx) != nil {
		return nil
	}
	err := s.Refresh(ctx)
	s.RingHere()
	return err
}

// Because says a thing with the reason that somebody gave; alone where there is none.
func Because(what, reason string) string {
	if reason != "" {
		return what + ": " + reason
	}
	return what
}
