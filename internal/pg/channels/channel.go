package channels

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// ChannelSettings are those of a high-integrity channel (S1.15).
type ChannelSettings struct {
	Name       string
	Capacity   int // how many are offered at most; more are stored, and wait
	MaxRetries int // nacks after which a message is dropped, from 1
	RetryEvery time.Duration
	StaleAfter time.Duration // a message that is held for longer is taken back
	SweepEvery time.Duration
}

const channelWaitMost = 365 * 24 * time.Hour

// DefaultChannel returns the settings that a channel has where none are given.
func DefaultChannel() ChannelSettings {
	return ChannelSettings{Capacity: 100, MaxRetries: 5, RetryEvery: 5 * time.Second,
		StaleAfter: 5 * time.Minute, SweepEvery: 30 * time.Second}
}

// Validate refuses what cannot work, with the field.
func (c ChannelSettings) Validate() error {
	switch {
	case c.Capacity <= 0:
		return fault.At("/capacity", "channel capacity must be greater than zero")
	case c.MaxRetries <= 0:
		return fault.At("/max_retries",
			"max_retries is %d: want 1 or more, since with 0 what was not seen would be dropped", c.MaxRetries)
	}
	for _, w := range []struct {
		field string
		d     time.Duration
	}{{"retry_interval", c.RetryEvery}, {"stale_after", c.StaleAfter}, {"sweep_interval", c.SweepEvery}} {
		if w.d < time.Millisecond || w.d > channelWaitMost {
			return fault.At("/"+w.field, "%s is %s: want 1ms to %s", w.field, w.d, channelWaitMost)
		}
	}
	return nil
}

// ChannelInfo is a channel with what lies in it.
type ChannelInfo struct {
	ID int32
	ChannelSettings
	Queued, Offered, Active, Dropped int // each counted to countedMost; in a list to countedListed
	Version                          int64
	CreatedAt                        time.Time
}

// countedMost and countedListed are how far the messages in a state are counted, of one channel and of each in a list.
const countedMost, countedListed = 100_000, 1001

const channelsSQL = `SELECT c.channel_id, c.name, c.capacity, c.max_retries, c.retry_every, c.stale_after, c.sweep_every,
		(SELECT count(*) FROM (SELECT FROM postern.channel_message m WHERE m.channel_id = c.channel_id AND m.state = 'Queued' LIMIT $5) x),
		(SELECT count(*) FROM (SELECT FROM postern.channel_message m WHERE m.channel_id = c.channel_id AND m.state = 'Offered' LIMIT $5) x),
		(SELECT count(*) FROM (SELECT FROM postern.channel_message m WHERE m.channel_id = c.channel_id AND m.state = 'Active' LIMIT $5) x),
		(SELECT count(*) FROM (SELECT FROM postern.channel_message_end e WHERE e.channel_id = c.channel_id AND e.state = 'Dropped' LIMIT $5) x),
		c.version, c.created_at
	FROM postern.channel c WHERE c.context_id = $1 AND ($2 = '' OR c.name = $2) AND c.name > $3 ORDER BY c.name LIMIT $4`

func (s *Store) channels(ctx context.Context, contextID int32, name, after string, limit, most int) ([]*ChannelInfo,
	error) {
	rows, err := s.Db(ctx).Query(ctx, channelsSQL, contextID, name, after, limit, most)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*ChannelInfo, error) {
		v := &ChannelInfo{}
		return v, row.Scan(&v.ID, &v.Name, &v.Capacity, &v.MaxRetries, &v.RetryEvery, &v.StaleAfter, &v.SweepEvery,
			&v.Queued, &v.Offered, &v.Active, &v.Dropped, &v.Version, &v.CreatedAt)
	})
	return list, db.Known(err)
}

// Channels lists up to limit channels of a context by name, those after a given one.
func (s *Store) Channels(ctx context.Context, contextID int32, after string, limit int) ([]*ChannelInfo, error) {
	return s.channels(ctx, contextID, "", after, limit, countedListed)
}

// Channel returns one channel, or NotFound.
func (s *Store) Channel(ctx context.Context, contextID int32, name string) (*ChannelInfo, error) {
	list, err := s.channels(ctx, contextID, name, "", 1, countedMost)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 || name == "" {
		return nil, noChannel(name)
	}
	return list[0], nil
}

func noChannel(name string) error {
	return fault.New(fault.NotFound, "not_found", "no channel %q", fault.Clip(name))
}

const channelVersion = `SELECT version, false FROM postern.channel WHERE context_id = $1 AND name = $2 FOR UPDATE`

// PutChannel creates a channel or replaces its settings; version as in MatchVersion. Messages that are offered beyond a
// smaller capacity stay offered. Two calls that create one channel at a time both insert: the upsert of the second
// waits for the first, and then replaces the settings that the first has written.
func (s *Store) PutChannel(ctx context.Context, by db.By, c ChannelSettings, version int64) (created bool, err error) {
	if err := c.Validate(); err != nil {
		return false, err
	}
	err = s.Run(ctx, func(t *db.Txn) error {
		if created, err = t.LockVersion(ctx, version, channelVersion, by.Context, c.Name); err != nil {
			return err
		}
		b := &pgx.Batch{}
		b.Queue(`INSERT INTO postern.channel AS c (context_id, name, capacity, max_retries, retry_every, stale_after, sweep_every, created_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, coalesce($8::timestamptz, clock_timestamp()))
			ON CONFLICT (context_id, name) DO UPDATE SET capacity = excluded.capacity, max_retries = excluded.max_retries,
				retry_every = excluded.retry_every, stale_after = excluded.stale_after, sweep_every = excluded.sweep_every, version = c.version + 1`,
			by.Context, c.Name, c.Capacity, c.MaxRetries, c.RetryEvery, c.StaleAfter, c.SweepEvery, s.Clock())
		s.AuditIn(b, by, "put", "/channels/"+c.Name)
		return t.Commit(ctx, b)
	})
	return created, err
}

// RemoveChannel removes a channel in which nothing lies, with its records; Conflict "in_use" while a message has not
// ended. A send holds the same lock, so that it comes before the removal and its message is seen, or finds no channel.
func (s *Store) RemoveChannel(ctx context.Context, by db.By, name string) error {
	return s.Run(ctx, func(t *db.Txn) error {
		missing, err := t.LockVersion(ctx, 0, channelVersion, by.Context, name)
		switch {
		case err != nil:
			return err
		case missing:
			return noChannel(name)
		}
		if err := by.Seen(t.Version); err != nil {
			return err
		}
		var id int32
		var used bool
		b := &pgx.Batch{}
		b.Queue(`SELECT c.channel_id, EXISTS (SELECT FROM postern.channel_message m WHERE m.channel_id = c.channel_id)
			FROM postern.channel c WHERE c.context_id = $1 AND c.name = $2`, by.Context, name).QueryRow(func(row pgx.Row) error { return row.Scan(&id, &used) })
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if used {
			return fault.New(fault.Conflict, "in_use",
				"channel %q has messages that have not ended: receive and acknowledge them first", fault.Clip(name))
		}
		b = &pgx.Batch{}
		b.Queue(`DELETE FROM postern.channel_message_end WHERE channel_id = $1`, id)
		b.Queue(`DELETE FROM postern.channel WHERE channel_id = $1`, id)
		s.AuditIn(b, by, "delete", "/channels/"+name)
		return t.Commit(ctx, b)
	})
}

// Conduit is a high-integrity channel whose messages carry a P, as JSON (S1.15). Any number of processes may
// hold one at a time.
//
// Send and Retry offer messages behind the lock of the channel's row. So they come one after the other, and "fewer are
// offered than the channel holds" stays true until their commit, since a receive only lowers the number. Each move of a
// message locks its row. Offering locks the channel first and skips messages that are locked; receiving and sweeping
// lock messages only, and skip them; acknowledging waits for one message and holds nothing else: so there is no cycle.
type Conduit[P any] struct {
	s  *Store
	id int32
	// Owner, if set, adds to the SQL transaction that drops a message what its owner must be told. It runs
	// again if that transaction does.
	Owner func(b *pgx.Batch, dropped Held[P]) error
}

// ConduitOf returns the conduit of a channel whose id is known.
func ConduitOf[P any](s *Store, id int32) *Conduit[P] { return &Conduit[P]{s: s, id: id} }

// OpenConduit finds the channel of that name, or NotFound.
func OpenConduit[P any](ctx context.Context, s *Store, contextID int32, name string) (*Conduit[P], error) {
	c := ConduitOf[P](s, 0)
	err := s.Db(ctx).QueryRow(ctx, `SELECT channel_id FROM postern.channel WHERE context_id = $1 AND name = $2`,
		contextID, name).Scan(&c.id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, noChannel(name)
	}
	return c, db.Known(err)
}

// Outgoing is a message as its sender brings it. The ID is the sender's: a message that it brings twice is sent once.
type Outgoing[P any] struct {
	ID      string
	Payload P
}

// Held is a message in the hands of a receiver.
type Held[P any] struct {
	ID      string
	Payload P
	Fence   int64 // shows that it is still held
	Retries int
	Error   string // of the last nack, "" for none
	SentAt  time.Time
}

// heldOf reads the payload of a row.
func heldOf[P any](m *ChannelMessageRow) (h Held[P], err error) {
	h = Held[P]{ID: m.ID, Fence: m.fence, Retries: m.retries, Error: m.err, SentAt: m.createdAt}
	err = json.Unmarshal(m.payload, &h.Payload)
	fault.Wrap(&err, "read the payload of message %q", m.ID)
	return h, err
}

// Two kinds of high-integrity channels belong to the leader (S1.15): one per source, to the engine, and one per
// context, from the engine to the channels of kind cap. A message is named by its event.
const (
	ChannelOfSource  = "source:"
	ChannelOfResults = "leader:results"
)
