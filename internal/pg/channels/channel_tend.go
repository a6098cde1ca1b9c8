package channels

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg/db"
)

// Tended is what the retriers and sweepers of channels did.
type Tended struct{ Offered, Dropped, TakenBack int }

// TendMost is how many messages of a channel one look offers or drops, so that every channel gets its turn.
const TendMost = 1000

// TendChannels runs the retrier and the sweeper of every channel whose time has come. Processes may do so at
// once: one that is writing down a channel's times is skipped, and who comes after it sees that it has been done.
func (s *Store) TendChannels(ctx context.Context) (done Tended, err error) {
	due, err := s.dueChannels(ctx)
	if err != nil {
		return done, err
	}
	for _, d := range due {
		c := ConduitOf[json.RawMessage](s, d.id)
		if d.sweep {
			n, e := c.Sweep(ctx)
			done.TakenBack += n
			err = errors.Join(err, e)
		}
		if d.retry {
			did, e := c.Offer(ctx, rand.Int64(), TendMost, false)
			err = errors.Join(err, e)
			done.Offered += did.Offered
			done.Dropped += did.Dropped
		}
	}
	return done, err
}

type dueChannel struct {
	id           int32
	retry, sweep bool
}

// dueChannels takes the channels whose time has come, and writes down that they were looked at.
func (s *Store) dueChannels(ctx context.Context) (due []dueChannel, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		due = nil
		var now time.Time
		b := &pgx.Batch{}
		b.Queue(`SELECT c.channel_id, coalesce(c.retried_at + c.retry_every <= d.now, true), coalesce(c.swept_at + c.sweep_every <= d.now, true)
			FROM postern.channel c CROSS JOIN (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) d
			WHERE coalesce(c.retried_at + c.retry_every <= d.now, true) OR coalesce(c.swept_at + c.sweep_every <= d.now, true)
			LIMIT 1000 FOR UPDATE OF c SKIP LOCKED`, s.Clock()).Query(func(rows pgx.Rows) error {
			var d dueChannel
			_, err := pgx.ForEachRow(rows, []any{&d.id, &d.retry, &d.sweep}, func() error { due = append(due, d); return nil })
			return err
		})
		s.ReadNow(b, &now)
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if len(due) == 0 {
			return t.Rollback(ctx)
		}
		b = &pgx.Batch{}
		var c db.Columns
		for _, d := range due {
			c.Add(d.id, d.retry, d.sweep)
		}
		b.Queue(`UPDATE postern.channel c SET retried_at = CASE WHEN n.retry THEN $4 ELSE c.retried_at END, swept_at = CASE WHEN n.sweep THEN $4 ELSE c.swept_at END
			FROM ROWS FROM (unnest($1::int[]), unnest($2::boolean[]), unnest($3::boolean[])) n(channel_id, retry, sweep)
			WHERE c.channel_id = n.channel_id`, c.Args(now)...)
		return t.Commit(ctx, b)
	})
	return due, err
}
