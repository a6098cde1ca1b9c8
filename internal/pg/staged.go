package pg

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Staged returns what an application has staged under uid and that was not drained yet, without an id, or
// NotFound.
func (s *Store) Staged(ctx context.Context, contextID int32, uid string) (*Transaction, error) {
	t := &Transaction{Staged: true, State: outbox.WAITING, QueueState: string(outbox.FREE)}
	err := s.Pool().QueryRow(ctx, `SELECT c.name, coalesce(o.queue, ''), o.uid, o.actor, o.type, o.data, o.max_retries, o.tags, o.not_before, o.callback, o.staged_at
		FROM postern.outbox o JOIN postern.context c USING (context_id) WHERE o.context_id = $1 AND o.uid = $2`, contextID, uid).
		Scan(&t.Context, &t.Queue, &t.UID, &t.Actor, &t.Type, &t.Data, &t.MaxRetries, &t.Tags, &t.NotBefore, &t.Callback, &t.ReceivedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fault.New(fault.NotFound, "not_found", "no transaction with uid %q", fault.Clip(uid))
	}
	return t, db.Known(err)
}
