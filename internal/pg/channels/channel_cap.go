package channels

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Caps lists up to limit channels to the workflow of a context by name, those after a given one: the senders of the
// leader's pool (S1.12).
func (s *Store) Caps(ctx context.Context, contextID int32, after string, limit int) ([]*pg.Sender, error) {
	rows, err := s.Db(ctx).Query(ctx, pg.SenderSQL+` AND p.name = $4 AND s.account > $5 ORDER BY s.account LIMIT $6`, contextID, "", s.Clock(), leader.PoolOfResults, after, limit)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, pg.ScanSender)
	return list, db.Known(err)
}

// OwnedChannel says whether a channel of that name is the leader's own: people may change its settings, but only the
// leader sends and receives over it, and people cannot remove it.
func OwnedChannel(name string) bool {
	return name == ChannelOfResults || strings.HasPrefix(name, ChannelOfSource)
}

// ChannelMessageInfo is a message of a channel, as people look at it.
type ChannelMessageInfo struct {
	ID        string
	Set       string // Queued, Offered, Active; Acked, Dropped
	Retries   int
	Fence     int64
	Error     string // of the last nack; of one that was dropped, why
	Payload   json.RawMessage
	CreatedAt time.Time
	UpdatedAt time.Time
}

// ChannelMessageAfter is the place of a message in a list. One that was sent again after its end has ended once more,
// with a higher fence.
type ChannelMessageAfter struct {
	ID    string `json:"id"`
	Fence int64  `json:"fence"`
}

// ChannelMessages lists up to limit messages of one set of a channel, by their ids and fences, those after a given one.
func (s *Store) ChannelMessages(ctx context.Context, contextID int32, channel, set string, after ChannelMessageAfter,
	limit int) ([]*ChannelMessageInfo, error) {
	c, err := s.Channel(ctx, contextID, channel)
	if err != nil {
		return nil, err
	}
	sql := `SELECT m.message_id, m.state, m.retries, m.fence, m.error, m.payload, m.created_at, m.updated_at
		FROM postern.channel_message m
		WHERE m.channel_id = $1 AND m.state = $2 AND m.message_id > $3 ORDER BY m.message_id LIMIT $4`
	args := []any{c.ID, set, after.ID, limit}
	switch set {
	case leader.ChannelMessageQueued, leader.ChannelMessageOffered, leader.ChannelMessageActive:
	case leader.ChannelMessageAcked, leader.ChannelMessageDropped:
		sql = `SELECT e.message_id, e.state, e.retries, e.fence, e.reason, e.payload, e.created_at, e.ended_at
			FROM postern.channel_message_end e
			WHERE e.channel_id = $1 AND e.state = $2 AND (e.message_id, e.fence) > ($3, $5)
			ORDER BY e.message_id, e.fence LIMIT $4`
		args = append(args, after.Fence)
	default:
		return nil, fault.At("set", "set %q: want queued, offered, active, dropped or acked", fault.Clip(set))
	}
	rows, err := s.Db(ctx).Query(ctx, sql, args...)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*ChannelMessageInfo, error) {
		v := &ChannelMessageInfo{}
		return v, row.Scan(&v.ID, &v.Set, &v.Retries, &v.Fence, &v.Error, &v.Payload, &v.CreatedAt, &v.UpdatedAt)
	})
	return list, db.Known(err)
}
