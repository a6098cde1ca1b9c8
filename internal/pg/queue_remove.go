package pg

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// RemoveQueue takes the settings of a queue back (S2.4, S2.19). Outcomes: a queue that never held anything is gone;
// one that did keeps its name, positions and fences, and is as if it had never been configured; Conflict "in_use"
// while anything waits or is in flight; NotFound.
func (s *Store) RemoveQueue(ctx context.Context, by db.By, name string) error {
	return s.Run(ctx, func(t *db.Txn) error {
		var id, have, last int64
		b := &pgx.Batch{}
		b.Queue(`SELECT queue_id, version, last_seq FROM postern.queue_name WHERE context_id = $1 AND name = $2 FOR UPDATE`, by.Context, name).
			Query(func(rows pgx.Rows) error {
				_, err := pgx.ForEachRow(rows, []any{&id, &have, &last}, func() error { return nil })
				return err
			})
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if id == 0 {
			return fault.New(fault.NotFound, "not_found", "no queue %q", fault.Clip(name))
		}
		if err := by.Seen(have); err != nil {
			return err
		}
		q, now, err := s.lockOne(ctx, t, id)
		if err != nil {
			return err
		}
		if q != nil && q.Phase != outbox.PhaseIdle {
			return fault.New(fault.Conflict, "in_use", "queue %q holds transactions: let them end or cancel them, /drain accepts no more", fault.Clip(name)).With("lever", "drain")
		}
		e := newEffects(s)
		e.now = now
		b = &pgx.Batch{}
		if q != nil {
			last = q.Tail
		}
		if last == 0 {
			e.removed = append(e.removed, id)
			b.Queue(`DELETE FROM postern.queue_name WHERE context_id = $1 AND name = $2`, by.Context, name)
			s.forgetQueue(id)
		} else {
			b.Queue(`UPDATE postern.queue_name SET configured = false, prio = 1, max_depth = NULL, pool_id = NULL, when_full = 'refuse',
				on_failure = 'continue', version = version + 1 WHERE context_id = $1 AND name = $2`, by.Context, name)
			if q != nil {
				q.Prio, q.MaxDepth, q.Pool, q.DropOldest, q.PauseOnFailure, q.Paused, q.Draining = 1, 0, 0, false, false, false, false
				e.saved = append(e.saved, q)
			}
		}
		s.AuditIn(b, by, "delete", "/queues/"+name)
		return e.commit(ctx, t, b)
	})
}
