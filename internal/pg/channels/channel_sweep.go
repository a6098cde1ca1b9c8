package channels

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Retried says what a look at the queued messages of a channel did.
type Retried string

const (
	RetriedNone    Retried = "no message" // nothing is queued
	RetriedFull    Retried = "full"       // there was no room for the one that was met
	RetriedOffered Retried = "offered"    // the next receiver gets it
	RetriedDropped Retried = "dropped"    // with a record; its owner was told
)

// Retry takes one random queued message, the next from a random start on. So a message that always fails does not
// stand in the way of the others, and the messages need not be sorted. The message is offered again, or dropped if it
// was refused as often as the channel allows. start is to be drawn anew for each call.
func (c *Conduit[P]) Retry(ctx context.Context, start int64) (Retried, error) {
	did, err := c.Offer(ctx, start, 1, false)
	switch {
	case did.met == 0:
		return RetriedNone, err
	case did.Dropped > 0:
		return RetriedDropped, err
	case did.Offered > 0:
		return RetriedOffered, err
	}
	return RetriedFull, err
}

// offered is what offer did.
type offered struct{ met, Offered, Dropped int }

// Offer is Retry of many messages in one go, from a random start on; fresh: only of messages that were never refused.
// It ends where the channel is full.
//
// Two calls of offer are serial by the channel's lock; the second sees what the first left. Only offer moves a queued
// message, so none is skipped. Served by channel_message_to_draw.
func (c *Conduit[P]) Offer(ctx context.Context, start int64, most int, fresh bool) (did offered, err error) {
	err = c.s.Run(ctx, func(t *db.Txn) error {
		did = offered{}
		var after, before []*ChannelMessageRow
		b := &pgx.Batch{}
		row := c.s.lockChannel(b, c.id)
		for cond, into := range map[string]*[]*ChannelMessageRow{">=": &after, "<": &before} {
			b.Queue(`SELECT `+ChannelMessageSelect+` FROM postern.channel_message m WHERE m.channel_id = $1 AND m.state = 'Queued' AND m.draw `+cond+` $2 AND (m.retries = 0 OR NOT $4)
				ORDER BY m.draw LIMIT $3 FOR UPDATE SKIP LOCKED`, c.id, start, most, fresh).Query(CollectChannelMessages(into))
		}
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		met := append(after, before...)
		b = &pgx.Batch{}
		w := &ChannelMessageChange{S: c.s, Channel: c.id, Now: row.now}
		for _, m := range met[:min(len(met), most)] {
			step, err := leader.NextChannelMessage(m.State, leader.ChannelMessageDrawn, row.facts(m))
			if err != nil {
				return err
			}
			did.met++
			reason := fmt.Sprintf("max retries reached (%d): %s", m.retries, m.err)
			w.apply(m, step, reason)
			switch {
			case step.TellOwner:
				did.Dropped++
				if err := c.told(b, m, reason); err != nil {
					return err
				}
			case m.State == leader.ChannelMessageOffered:
				did.Offered++
				row.offered++
			}
		}
		if did.Dropped+did.Offered == 0 {
			return t.Rollback(ctx)
		}
		w.Queue(b)
		return t.Commit(ctx, b)
	})
	return did, err
}

// told tells the owners of a message that is dropped: the one that is registered with the store, and that of the
// conduit.
func (c *Conduit[P]) told(b *pgx.Batch, m *ChannelMessageRow, reason string) error {
	if c.s.Dropped != nil {
		c.s.Dropped(b, c.id, m.ID, reason)
	}
	if c.Owner == nil {
		return nil
	}
	h, _ := heldOf[P](m) // of a payload that is no P the owner gets id and error
	return c.Owner(b, h)
}

// Sweep takes back messages that are held for longer than the channel allows, or by a node that is dead, and returns
// how many. It counts as no retry, since no receiver said that it failed. A message that is locked just now is being
// acknowledged, and skipped. Served by channel_message_by_state.
func (c *Conduit[P]) Sweep(ctx context.Context) (total int, err error) {
	const chunk = 500
	for n := chunk; n == chunk; total += n {
		err := c.s.Run(ctx, func(t *db.Txn) error {
			var rows []*ChannelMessageRow
			w := &ChannelMessageChange{S: c.s, Channel: c.id}
			b := &pgx.Batch{}
			b.Queue(`SELECT `+ChannelMessageSelect+` FROM postern.channel_message m JOIN postern.channel c ON c.channel_id = m.channel_id
				LEFT JOIN postern.node n ON (n.node_id, n.epoch) = (m.node_id, m.node_epoch) AND n.dead_at IS NULL
				WHERE m.channel_id = $1 AND m.state = 'Active'
					AND (m.updated_at + c.stale_after < coalesce($2::timestamptz, clock_timestamp()) OR m.node_id IS NOT NULL AND n.node_id IS NULL)
				LIMIT $3 FOR UPDATE OF m SKIP LOCKED`, c.id, c.s.Clock(), chunk).Query(CollectChannelMessages(&rows))
			c.s.ReadNow(b, &w.Now)
			if err := t.Send(ctx, b); err != nil {
				return err
			}
			if n = len(rows); n == 0 {
				return t.Rollback(ctx)
			}
			for _, m := range rows {
				step, err := leader.NextChannelMessage(m.State, leader.ChannelMessageStale, leader.ChannelMessageFacts{})
				if err != nil {
					return err
				}
				w.apply(m, step, "")
			}
			b = &pgx.Batch{}
			w.Queue(b)
			return t.Commit(ctx, b)
		})
		if err != nil {
			return total, err
		}
	}
	return total, nil
}
