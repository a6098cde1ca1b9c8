package batches

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Grant is how many calls an actor may still make of an authorization, and how many it has spent (S4.13).
type Grant struct{ Left, Spent int64 }

// PutGrant gives an actor so many calls from now on, whatever it has spent. Conflict "wrong_state" for an
// authorization that counts no calls. The authorization's row is locked: each change of a call (hold, burn, give
// back) takes that lock too, and so the spent calls do not change meanwhile.
func (s *Store) PutGrant(ctx context.Context, by db.By, label, actor string, left int64) (g Grant, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		b := &pgx.Batch{}
		b.Queue(authorizationLock, by.Context, label)
		var found *Authorization
		b.Queue(authorizationSelect+` AND a.label = $3`, by.Context, actor, label).Query(func(rows pgx.Rows) error {
			list, err := pgx.CollectRows(rows, scanAuthorization)
			if err == nil && len(list) > 0 {
				found = list[0]
			}
			return err
		})
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		switch {
		case found == nil:
			return noAuthorization(label)
		case !found.Limited():
			return fault.New(fault.Conflict, "wrong_state", "authorization %q counts no calls: its mode is not with_call_limit", fault.Clip(label))
		}
		if err := by.Seen(found.Version); err != nil {
			return err
		}
		was := found.Mode.Limits[actor] - found.Spent
		found.Mode.Limits[actor] = found.Spent + left
		if err := found.Authorization.Validate(); err != nil {
			return err
		}
		settings, err := json.Marshal(found.Authorization)
		if err != nil {
			return err
		}
		b = &pgx.Batch{}
		b.Queue(`UPDATE postern.batch_authorization SET settings = $2, version = version + 1 WHERE authorization_id = $1`, found.id, string(settings))
		s.AuditChange(b, by, "grant", "/authorizations/"+label+"/grants/"+actor, map[string]any{"actor": actor, "calls": max(0, was)}, map[string]any{"actor": actor, "calls": left})
		g = Grant{left, found.Spent}
		return t.Commit(ctx, b)
	})
	return g, err
}

// Executions lists the batches that were sent through an authorization, or count for it, by their ids.
func (s *Store) Executions(ctx context.Context, contextID int32, label string, f BatchFilter) ([]*Batch, error) {
	a, err := s.Authorization(ctx, contextID, label, "")
	if err != nil {
		return nil, err
	}
	return s.batches(ctx, ` WHERE b.authorization_id = $1 AND b.batch_id > $2
		AND ($3 = '' OR $3 = 'in_process' AND b.result IS NULL OR b.result = $3) ORDER BY b.batch_id LIMIT $4`, a.id, f.After, string(f.Result), f.Limit)
}
