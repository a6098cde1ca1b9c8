package pg

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// DrainContext makes a context accept nothing more and work off the rest; resume ends it.
func (s *Store) DrainContext(ctx context.Context, by db.By, name string) (LeverResult, error) {
	return s.SetFlag(ctx, by, "drain", "/contexts/"+name, `UPDATE postern.context SET draining = $3, version = version + 1
		WHERE context_id = $1 AND name = $2 AND removed_at IS NULL AND NOT draining`, lockContext, name, true)
}

// DrainDispatcher makes a type accept nothing more and work off the rest; resume ends it.
func (s *Store) DrainDispatcher(ctx context.Context, by db.By, typ string) (LeverResult, error) {
	return s.SetFlag(ctx, by, "drain", "/dispatchers/"+typ, `UPDATE postern.dispatcher SET draining = $3, version = version + 1
		WHERE context_id = $1 AND type = $2 AND removed_at IS NULL AND NOT draining`, lockDispatcher, typ, true)
}

// DrainSender lets a sender take only transactions that name it, until none is left, and posts that name it are
// refused; resume ends the drain. The sender serves the transaction that it has in flight to its end.
func (s *Store) DrainSender(ctx context.Context, by db.By, account string) (LeverResult, error) {
	return s.SetFlag(ctx, by, "drain", "/senders/"+account, `UPDATE postern.sender SET draining = $3, version = version + 1
		WHERE context_id = $1 AND account = $2 AND removed_at IS NULL AND NOT draining`, senderExists, account, true)
}

// closed refuses a post to a context or a type that is drained, or one that names a drained sender. It lets a
// submission pass that a system makes of something that it holds already (Held), as a processor does of a batch: that
// is a part of the rest that is worked off.
func (v *confView) closed(sub *Submission, d *Dispatcher) error {
	if sub.Held {
		return nil
	}
	if err := v.drained(sub.ContextID, d); err != nil {
		return err
	}
	if sub.Sender != "" && v.drains(v.accounts[sub.ContextID][sub.Sender]) {
		return fault.New(fault.Conflict, "queue_draining", "sender %s accepts nothing more until it is resumed: leave sender out, or name another account", sub.Sender)
	}
	return nil
}

// drained refuses what is new in a context that is drained, or for a type that is; d may be nil.
func (v *confView) drained(contextID int32, d *Dispatcher) error {
	switch c := v.tenants[contextID]; {
	case c != nil && c.Draining:
		return fault.New(fault.Conflict, "queue_draining", "context %s accepts nothing more until it is resumed", c.Name)
	case d != nil && d.Draining:
		return fault.New(fault.Conflict, "queue_draining", "type %s accepts nothing more until it is resumed", d.Type)
	}
	return nil
}

// Accepts refuses something new, such as a flow or an event, where its context is drained, or a type of the
// transactions that will be posted of it. Each door asks behind its look for what is there already, so that a repeated
// request has its answer; what a system makes of something that it holds is not asked about. It goes by the
// configuration that this process has read, as a post of a transaction does.
func (s *Store) Accepts(contextID int32, types ...string) error {
	v := s.Conf.view.Load()
	for _, typ := range append(types, "") { // the last is none, and about the context alone
		if err := v.drained(contextID, v.dispatcherOf(contextID, typ)); err != nil {
			return err
		}
	}
	return nil
}

// PurgeContext is PurgeQueue for all queues of a context: queue by queue, oldest first, up to most. more says that some
// are left.
func (s *Store) PurgeContext(ctx context.Context, by db.By, name string, most int) (cancelled int, more bool, err error) {
	t, err := s.Tenant(ctx, name)
	if err != nil {
		return 0, false, err
	}
	return s.purge(ctx, by, "/contexts/"+name, t.Version, most, "", "")
}

// PurgeDispatcher is PurgeContext for what waits of one type.
func (s *Store) PurgeDispatcher(ctx context.Context, by db.By, typ string, most int) (cancelled int, more bool, err error) {
	d, err := s.Dispatcher(ctx, by.Context, typ)
	if err != nil {
		return 0, false, err
	}
	return s.purge(ctx, by, "/dispatchers/"+typ, d.Version, most, typ, "")
}

// PurgeSender is PurgeContext for what only one account may sign.
func (s *Store) PurgeSender(ctx context.Context, by db.By, account string, most int) (cancelled int, more bool, err error) {
	v, err := s.Sender(ctx, by.Context, account)
	if err != nil {
		return 0, false, err
	}
	return s.purge(ctx, by, "/senders/"+account, v.Version, most, "", account)
}

func (s *Store) purge(ctx context.Context, by db.By, object string, version int64, most int, typ, account string) (cancelled int, more bool, err error) {
	if err := by.Seen(version); err != nil {
		return 0, false, err
	}
	by.Match = nil // it was about the object
	dry := db.JointOf(ctx) != nil
	begin, err := s.Now(ctx)
	if err != nil {
		return 0, false, err
	}
	var above position
	for {
		// by the key of queues that hold something, and by that of tasks in each
		rows, err := s.Db(ctx).Query(ctx, `SELECT t.queue_id, t.seq, t.day - '1970-01-01', postern.salt(t.created_at, t.moved_from) FROM postern.queue q
			CROSS JOIN LATERAL (SELECT t.queue_id, t.seq, t.day, t.created_at, t.moved_from FROM postern.task t WHERE t.queue_id = q.queue_id AND t.seq >= q.head_seq AND t.day >= q.head_day
				AND (t.queue_id, t.seq) > ($2, $3) AND t.created_at <= $4 AND t.seq IS DISTINCT FROM q.cur_seq AND ($6 = '' OR t.type = $6)
				AND ($7 = '' OR t.sender_id = (SELECT s.sender_id FROM postern.sender s WHERE (s.context_id, s.account) = ($1, $7)))
				AND NOT EXISTS (SELECT FROM postern.outcome o WHERE (o.queue_id, o.seq, o.day) = (t.queue_id, t.seq, t.day))
				ORDER BY t.seq LIMIT $5) t
			WHERE q.context_id = $1 AND q.queue_id >= $2 AND q.phase <> 'IDLE' ORDER BY q.queue_id, t.seq LIMIT $5`,
			by.Context, above.queue, above.seq, begin, min(bulkChunk, most-cancelled+1), typ, account)
		if err != nil {
			return cancelled, false, db.Known(err)
		}
		ids, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (id outbox.ID, err error) {
			return id, row.Scan(&id.Queue, &id.Seq, &id.Day, &id.Salt)
		})
		if err != nil {
			return cancelled, false, db.Known(err)
		}
		if len(ids) > most-cancelled {
			ids, more = ids[:most-cancelled], true
		}
		if len(ids) == 0 {
			return cancelled, more, s.auditPurge(ctx, by, object)
		}
		above = positionOf(ids[len(ids)-1])
		done, err := s.Bulk(ctx, by, ids, dry, s.cancelWaits)
		for _, p := range done {
			if p.Changed {
				cancelled++
			}
		}
		if err != nil {
			return cancelled, true, err
		}
	}
}
