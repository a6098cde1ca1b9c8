package deliveries

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
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

// Feed returns up to limit events of a subscription after a position, in order, and the newest position that was given.
// Positions become visible in their order, since they are given under the subscription's row. If retention has dropped
// a position above after, events may be missing, and the cursor is expired. An after between the newest position and
// now is of a time that was lost: the next event comes behind it.
func (s *Store) Feed(ctx context.Context, sub int32, include []string, after int64, limit int) (list []*FeedEvent, newest int64, err error) {
	if include == nil {
		include = []string{}
	}
	b := &pgx.Batch{}
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
	// it is read after the events, so that a drop between the two reads is seen
	var dropped, most int64
	b.Queue(`SELECT newest, dropped, greatest(newest, postern.micros(coalesce($2::timestamptz, clock_timestamp()))) FROM postern.subscription WHERE subscription_id = $1`,
		sub, s.LeaseNow()).QueryRow(func(row pgx.Row) error { return row.Scan(&newest, &dropped, &most) })
	if err := s.Pool().SendBatch(ctx, b).Close(); err != nil {
		return nil, 0, db.Known(err)
	}
	switch {
	case after > most:
		return nil, newest, ahead(Cursor{sub, after})
	case after < dropped:
		return nil, newest, expired(sub, after, dropped)
	}
	if i := slices.IndexFunc(list, func(e *FeedEvent) bool { return e.Body == nil }); i == 0 {
		return nil, newest, expired(sub, after, list[0].Position)
	} else if i > 0 {
		list = list[:i]
	}
	return list, newest, nil
}

// expired says where one can go on between whom and a position events have been dropped.
func expired(sub int32, after, position int64) error {
	next := Cursor{sub, position}
	return fault.New(fault.NotFound, "cursor_expired", "events after cursor %q have been dropped by retention: go on after %q, and read what you need anew",
		Cursor{sub, after}, next).With("next", next.String())
}

func ahead(c Cursor) error {
	return fault.New(fault.Invalid, "bad_cursor", "cursor %q lies ahead of all events", c)
}

// NewestPositions returns the newest position of each subscription that still exists.
func (s *Store) NewestPositions(ctx context.Context, subs []int32) (map[int32]int64, error) {
	rows, err := s.Db(ctx).Query(ctx, `SELECT subscription_id, newest FROM postern.subscription WHERE subscription_id = ANY ($1) AND removed_at IS NULL`, subs)
	if err != nil {
		return nil, db.Known(err)
	}
	out := map[int32]int64{}
	var id int32
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error { out[id] = n; return nil })
	return out, db.Known(err)
}

// AckFeed acknowledges everything up to and with a position; going back is Rewind.
func (s *Store) AckFeed(ctx context.Context, contextID int32, name, cursor string) (changed bool, err error) {
	v, err := s.Reading(ctx, contextID, name)
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
	if now, err := s.Now(ctx); err != nil {
		return false, err
	} else if c.Position > s.Position(v.Newest-1, now) {
		return false, ahead(c)
	}
	tag, err := s.Exec(ctx, `UPDATE postern.checkpoint SET acked = $2, acked_at = coalesce($3::timestamptz, clock_timestamp())
		WHERE subscription_id = $1 AND acked < $2`, v.ID, c.Position, s.Clock())
	return tag.RowsAffected() > 0, err
}

// RewindFeed takes a pull subscription back to before the first event that happened since, and returns how many
// events it will get once more.
func (s *Store) RewindFeed(ctx context.Context, by db.By, name string, since time.Time) (n int64, err error) {
	err = s.onSubscription(ctx, by, "redeliver", name, func(b *pgx.Batch, id int32, _ time.Time) {
		b.Queue(`UPDATE postern.checkpoint k SET acked = o.first FROM (SELECT k.acked AS was, least(k.acked, (SELECT min(d.cursor) - 1 FROM postern.delivery d
				WHERE d.subscription_id = $1 AND d.subscription_id > 0 AND d.at >= $2)) AS first
				FROM postern.checkpoint k WHERE k.subscription_id = $1 FOR UPDATE) o
			WHERE k.subscription_id = $1 
			RETURNING (SELECT count(*) FROM postern.delivery d WHERE d.subscription_id = $1 AND d.subscription_id > 0 AND d.cursor > o.first AND d.cursor <= o.was)`, id, since).QueryRow(func(row pgx.Row) error { return row.Scan(&n) })
	})
	return n, err
}
