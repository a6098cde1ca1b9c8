package pg

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
)

// Cursor is a position in a subscription, as clients keep it. It names the subscription, so that one of
// another, or of one that was deleted, is not taken for it.
type Cursor struct {
	Subscription int32
	Position     int64
}

// String is opaque to clients; postern.feed writes the same.
func (c Cursor) String() string { return fmt.Sprintf("c%d-%d", c.Subscription, c.Position) }

// ParseCursor reads a cursor of a subscription, or refuses it.
func ParseCursor(text string, of int32) (Cursor, error) {
	sub, at, ok := strings.Cut(strings.TrimPrefix(text, "c"), "-")
	id, err1 := strconv.ParseInt(sub, 10, 32)
	position, err2 := strconv.ParseInt(at, 10, 64)
	c := Cursor{int32(id), position}
	switch {
	case !ok || err1 != nil || err2 != nil || c.String() != text || position < 0 || id <= 0:
		return c, fault.New(fault.Invalid, "bad_cursor", "cursor %q is none of ours", fault.Clip(text))
	case c.Subscription != of:
		return c, fault.New(fault.NotFound, "cursor_expired", "cursor %q is of another subscription, or of one that was deleted", fault.Clip(text))
	}
	return c, nil
}

// FeedEvent is one event at its position.
type FeedEvent struct {
	Position int64
	At       time.Time
	Event    outbox.Event
	ID       outbox.ID
	Queue    string
	Type     string
	Body     json.RawMessage
}

// Feed returns up to limit events of a subscription after a position, in order, and the newest position that
// was given. Positions are dense, and become visible in their order, since they are given under the
// subscription's row: what is missing has been dropped by retention, and makes the cursor expired.
func (s *Store) Feed(ctx context.Context, sub int32, include []string, after int64, limit int) (list []*FeedEvent, newest int64, err error) {
	if include == nil {
		include = []string{}
	}
	b := &pgx.Batch{}
	b.Queue(`SELECT newest FROM postern.subscription WHERE subscription_id = $1`, sub).QueryRow(func(row pgx.Row) error { return row.Scan(&newest) })
	b.Queue(`SELECT d.cursor, d.at, d.event, d.queue_id, d.seq, d.day - '1970-01-01', coalesce(postern.salt(t.created_at, t.moved_from), 0), coalesce(n.name, ''), coalesce(t.type, ''),
			postern.event_data(d.queue_id, d.seq, d.day, d.event, d.at, $3)
		FROM (SELECT * FROM postern.delivery WHERE subscription_id = $1 AND subscription_id > 0 AND cursor > $2 ORDER BY cursor LIMIT $4) d
		LEFT JOIN postern.task t ON (t.queue_id, t.seq, t.day) = (d.queue_id, d.seq, d.day)
		LEFT JOIN postern.queue_name n ON n.queue_id = d.queue_id
		ORDER BY d.cursor`, sub, after, include, limit).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			e := &FeedEvent{}
			if err := rows.Scan(&e.Position, &e.At, &e.Event, &e.ID.Queue, &e.ID.Seq, &e.ID.Day, &e.ID.Salt, &e.Queue, &e.Type, &e.Body); err != nil {
				return err
			}
			list = append(list, e)
		}
		return rows.Err()
	})
	if err := s.pool.SendBatch(ctx, b).Close(); err != nil {
		return nil, 0, known(err)
	}
	if after > newest {
		return nil, newest, fault.New(fault.Invalid, "bad_cursor", "cursor %q lies ahead of the newest event", Cursor{sub, after})
	}
	for i, e := range list {
		if e.Position != after+1+int64(i) || e.Body == nil {
			return nil, newest, s.expired(ctx, sub, after+int64(i))
		}
	}
	if len(list) == 0 && after < newest {
		return nil, newest, s.expired(ctx, sub, after)
	}
	return list, newest, nil
}

// expired says where one whose next event has been dropped can go on.
func (s *Store) expired(ctx context.Context, sub int32, after int64) error {
	next := Cursor{Subscription: sub}
	if err := s.db(ctx).QueryRow(ctx, `SELECT coalesce((SELECT min(cursor) - 1 FROM postern.delivery WHERE subscription_id = $1 AND subscription_id > 0 AND cursor > $2 + 1), newest)
		FROM postern.subscription WHERE subscription_id = $1`, sub, after).Scan(&next.Position); err != nil {
		return known(err)
	}
	return fault.New(fault.NotFound, "cursor_expired", "events after cursor %q have been dropped by retention: go on after %q, and read what you need anew",
		Cursor{sub, after}, next).With("next", next.String())
}

// Newest returns the newest position of each subscription that still exists.
func (s *Store) Newest(ctx context.Context, subs []int32) (map[int32]int64, error) {
	rows, err := s.db(ctx).Query(ctx, `SELECT subscription_id, newest FROM postern.subscription WHERE subscription_id = ANY ($1) AND removed_at IS NULL`, subs)
	if err != nil {
		return nil, known(err)
	}
	out := map[int32]int64{}
	var id int32
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error { out[id] = n; return nil })
	return out, known(err)
}

// Ack acknowledges everything up to and with a position; going back is Rewind.
func (s *Store) Ack(ctx context.Context, contextID int32, name, cursor string) (changed bool, err error) {
	v, err := s.Subscription(ctx, contextID, name)
	if err != nil {
		return false, err
	}
	if v.Kind != "pull" {
		return false, fault.New(fault.Conflict, "wrong_state", "subscription %q is of kind %s: only what is pulled is acknowledged", name, v.Kind)
	}
	c, err := ParseCursor(cursor, v.ID)
	if err != nil {
		return false, err
	}
	if c.Position > v.Newest {
		return false, fault.New(fault.Invalid, "bad_cursor", "cursor %q lies ahead of the newest event", fault.Clip(cursor))
	}
	tag, err := s.exec(ctx, `UPDATE postern.checkpoint SET acked = $2, acked_at = coalesce($3::timestamptz, clock_timestamp())
		WHERE subscription_id = $1 AND acked < $2`, v.ID, c.Position, s.now())
	return tag.RowsAffected() > 0, err
}

// Rewind takes a pull subscription back to before the first event that happened since, and returns how many
// events it will get once more.
func (s *Store) Rewind(ctx context.Context, by By, name string, since time.Time) (n int64, err error) {
	err = s.onSubscription(ctx, by, "redeliver", name, func(b *pgx.Batch, id int32, _ time.Time) {
		b.Queue(`UPDATE postern.checkpoint k SET acked = o.first FROM (SELECT k.acked AS was, least(k.acked, (SELECT min(d.cursor) - 1 FROM postern.delivery d
				WHERE d.subscription_id = $1 AND d.subscription_id > 0 AND d.at >= $2)) AS first
				FROM postern.checkpoint k WHERE k.subscription_id = $1 FOR UPDATE) o
			WHERE k.subscription_id = $1 RETURNING o.was - o.first`, id, since).QueryRow(func(row pgx.Row) error { return row.Scan(&n) })
	})
	return n, err
}
