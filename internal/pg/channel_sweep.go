package pg

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/leader"
)

// Retried says what a look at the queued messages of a channel did.
type Retried string

const (
	RetriedNone    Retried = "no message" // nothing is queued
	RetriedFull    Retried = "full"       // there was no room for the one that was met
	RetriedOffered Retried = "offered"
	RetriedDropped Retried = "dropped" // with a record; its owner was told
)

// Retry meets one random queued message: the next from a random start on, so that no poisonous one stands in
// the way of the others and nobody sorts them all. It is offered again, or dropped if it was refused as often
// as the channel allows. start is to be drawn anew for each call.
//
// Two that retry are serial by the channel's lock; the second sees what the first left. Nobody else moves a
// queued message, so none is skipped. Served by message_to_draw.
func (c *Conduit[P]) Retry(ctx context.Context, start int64) (did Retried, err error) {
	err = c.s.run(ctx, func(t *txn) error {
		did = RetriedNone
		var after, before []*messageRow
		b := &pgx.Batch{}
		row := c.s.lockChannel(b, c.id)
		b.Queue(`SELECT `+messageSelect+` FROM postern.message m WHERE m.channel_id = $1 AND m.state = 'Queued' AND m.draw >= $2
			ORDER BY m.draw LIMIT 1 FOR UPDATE SKIP LOCKED`, c.id, start).Query(collectMessages(&after))
		b.Queue(`SELECT `+messageSelect+` FROM postern.message m WHERE m.channel_id = $1 AND m.state = 'Queued' AND m.draw < $2
			ORDER BY m.draw LIMIT 1 FOR UPDATE SKIP LOCKED`, c.id, start).Query(collectMessages(&before))
		if err := t.send(ctx, b); err != nil {
			return err
		}
		met := append(after, before...)
		if len(met) == 0 {
			return t.rollback(ctx)
		}
		m := met[0]
		step, err := leader.NextMessage(m.state, leader.MessageDrawn, row.facts(m))
		if err != nil {
			return err
		}
		b = &pgx.Batch{}
		w := &messageChange{channel: c.id, now: row.now}
		w.apply(m, step, fmt.Sprintf("max retries reached (%d): %s", m.retries, m.err))
		w.queue(b)
		switch {
		case step.TellOwner:
			did = RetriedDropped
			h, _ := heldOf[P](m) // what is no P is told by its id and error
			if c.Owner != nil {
				if err := c.Owner(b, h); err != nil {
					return err
				}
			}
		case m.state == leader.MessageOffered:
			did = RetriedOffered
		default:
			did = RetriedFull
			return t.rollback(ctx)
		}
		return t.commit(ctx, b)
	})
	return did, err
}

// Sweep takes back what is held for longer than the channel allows, or by a node that is dead, and returns how
// much that was. It counts as no retry: nobody said that it failed. What is locked just now is being
// acknowledged, and skipped. Served by message_by_state.
func (c *Conduit[P]) Sweep(ctx context.Context) (total int, err error) {
	const chunk = 500
	for n := chunk; n == chunk; total += n {
		err := c.s.run(ctx, func(t *txn) error {
			var rows []*messageRow
			w := &messageChange{channel: c.id}
			b := &pgx.Batch{}
			b.Queue(`SELECT `+messageSelect+` FROM postern.message m JOIN postern.channel c ON c.channel_id = m.channel_id
				LEFT JOIN postern.node n ON (n.node_id, n.epoch) = (m.node_id, m.node_epoch) AND n.dead_at IS NULL
				WHERE m.channel_id = $1 AND m.state = 'Active'
					AND (m.updated_at + c.stale_after < coalesce($2::timestamptz, clock_timestamp()) OR m.node_id IS NOT NULL AND n.node_id IS NULL)
				LIMIT $3 FOR UPDATE OF m SKIP LOCKED`, c.id, c.s.now(), chunk).Query(collectMessages(&rows))
			c.s.readNow(b, &w.now)
			if err := t.send(ctx, b); err != nil {
				return err
			}
			if n = len(rows); n == 0 {
				return t.rollback(ctx)
			}
			for _, m := range rows {
				step, err := leader.NextMessage(m.state, leader.MessageStale, leader.MessageFacts{})
				if err != nil {
					return err
				}
				w.apply(m, step, "")
			}
			b = &pgx.Batch{}
			w.queue(b)
			return t.commit(ctx, b)
		})
		if err != nil {
			return total, err
		}
	}
	return total, nil
}
