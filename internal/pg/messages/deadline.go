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
	var codes []string
	err = s.Run(ctx, func(t *db.Txn) error {
		codes = nil
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
		if len(list) == 0 {
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
			codes = append(codes, m.Code)
		}
		return t.Commit(ctx, b)
	})
	if err != nil {
		return 0, err
	}
	if s.Passed != nil {
		for _, code := range codes {
			s.Passed(code)
		}
	}
	return len(codes), nil
}
