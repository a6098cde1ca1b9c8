package messages

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg/db"
)

// overdue adds to b the end of a message whose deadline is over: no process may have looked since, and a word that
// comes now is late.
func (s *Store) overdue(b *pgx.Batch, m *Message, now time.Time) error {
	if m.Status.Ended() || m.Due == nil || m.Due.After(now) {
		return nil
	}
	return s.Move(b, m, Change{On: message.OnDeadline, By: "deadline", Now: now})
}

// Expire ends messages whose deadline is over, with its name, and returns how many. What locks a message at this moment
// comes before: if that ends the deadline, the message is not found here, or is left to the next time.
func (s *Store) Expire(ctx context.Context) (n int, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		var list []*Message
		b := &pgx.Batch{}
		b.Queue(`SELECT `+briefColumns+`
			FROM postern.message m
			WHERE m.due_at <= coalesce($1::timestamptz, clock_timestamp())
			ORDER BY m.due_at
			LIMIT $2
			FOR UPDATE SKIP LOCKED`, s.Clock(), routedAtOnce).Query(collect(&list))
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if n = len(list); n == 0 {
			return t.Rollback(ctx)
		}
		now, err := s.now(ctx, t)
		if err != nil {
			return err
		}
		b = &pgx.Batch{}
		for _, m := range list {
			if err := s.Move(b, m, Change{On: message.OnDeadline, By: "deadline", Now: now}); err != nil {
				return err
			}
		}
		return s.commit(ctx, t, b, list...)
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// commit commits what moves messages, and then tells which deadlines have ended some of them. A dry run tells of none.
func (s *Store) commit(ctx context.Context, t *db.Txn, b *pgx.Batch, list ...*Message) error {
	if err := t.Commit(ctx, b); err != nil || s.Passed == nil || t.Joint != nil && t.Joint.Dry {
		return err
	}
	for _, m := range list {
		if m.over {
			s.Passed(m.Code)
		}
	}
	return nil
}
