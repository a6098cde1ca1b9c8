package deliveries

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Subscription is one with what the database knows of it.
type Subscription struct {
	outbox.Subscription
	ID             int32
	Enabled        bool
	DisabledReason string
	Since          *time.Time // every event from then on is in it
	Newest         int64      // the last position that was given
	Cursor         int64      // how far its consumer has got
	Pending        int        // not delivered or acknowledged yet, counted to pendingMost; in a list to pendingListed
	FailingSince   *time.Time
	SecretUntil    *time.Time // the secret before is valid until then
	Version        int64
	CreatedAt      time.Time
}

// pendingMost and pendingListed are how far the events that are pending are counted, of one subscription and of each in
// a list.
const pendingMost, pendingListed = 100_000, 1001

// subscriptionSQL reads subscriptions, and counts what is pending up to $4. Events that wait to be numbered are pending
// too. A webhook has got to just before the first delivery that has not ended.
const subscriptionSQL = `SELECT s.subscription_id, s.name, s.kind, s.url, s.events, s.filter, s.on_error, s.include, s.enabled, s.disabled_reason, s.since,
		s.newest, CASE WHEN s.kind = 'webhook' THEN coalesce(least(
				(SELECT min(d.cursor) FROM postern.delivery d WHERE d.subscription_id = s.subscription_id AND d.state = 'pending'),
				(SELECT min(d.cursor) FROM postern.delivery d WHERE d.subscription_id = s.subscription_id AND d.state = 'queued')) - 1, s.newest)
			ELSE coalesce(k.acked, 0) END,
		least($4::bigint, (SELECT count(*)
				FROM (SELECT FROM postern.fanout f WHERE f.subscription_id = s.subscription_id LIMIT $4) f)
			+ CASE s.kind WHEN 'webhook' THEN (SELECT count(*) FROM (SELECT FROM postern.delivery d
				WHERE d.subscription_id = s.subscription_id AND d.state IN ('pending', 'queued') LIMIT $4) d)
			WHEN 'pull' THEN (SELECT count(*) FROM (SELECT FROM postern.delivery d
				WHERE d.subscription_id = s.subscription_id AND d.subscription_id > 0 AND d.cursor > k.acked LIMIT $4) d) ELSE 0 END),
		s.failing_since, CASE WHEN s.secret_until > coalesce($3::timestamptz, clock_timestamp()) THEN s.secret_until END, s.version, s.created_at
	FROM postern.subscription s LEFT JOIN postern.checkpoint k ON k.subscription_id = s.subscription_id
	WHERE s.context_id = $1 AND s.removed_at IS NULL AND ($2 = '' OR s.name = $2)`

func scanSubscription(row pgx.CollectableRow) (*Subscription, error) {
	v := &Subscription{}
	return v, row.Scan(&v.ID, &v.Name, &v.Kind, &v.URL, &v.Events, &v.Filter, &v.OnError, &v.Include, &v.Enabled, &v.DisabledReason, &v.Since,
		&v.Newest, &v.Cursor, &v.Pending, &v.FailingSince, &v.SecretUntil, &v.Version, &v.CreatedAt)
}

// Subscriptions lists up to limit subscriptions of a context by name, those after a given one.
func (s *Store) Subscriptions(ctx context.Context, contextID int32, after string, limit int) ([]*Subscription, error) {
	rows, err := s.Db(ctx).Query(ctx, subscriptionSQL+` AND s.kind <> 'stream' AND s.name > $5
		ORDER BY s.name
		LIMIT $6`, contextID, "", s.Clock(), pendingListed, after, limit)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanSubscription)
	return list, db.Known(err)
}

// Subscription returns one subscription, or NotFound.
func (s *Store) Subscription(ctx context.Context, contextID int32, name string) (*Subscription, error) {
	return s.subscription(ctx, contextID, name, pendingMost)
}

// Reading is Subscription for a reader of its events: it does not count those that are pending.
func (s *Store) Reading(ctx context.Context, contextID int32, name string) (*Subscription, error) {
	return s.subscription(ctx, contextID, name, 0)
}

func (s *Store) subscription(ctx context.Context, contextID int32, name string, most int) (*Subscription, error) {
	rows, err := s.Db(ctx).Query(ctx, subscriptionSQL, contextID, name, s.Clock(), most)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanSubscription)
	if err != nil {
		return nil, db.Known(err)
	}
	if len(list) == 0 || name == "" {
		return nil, noSubscription(name)
	}
	return list[0], nil
}

func noSubscription(name string) error {
	return fault.New(fault.NotFound, "not_found", "no subscription %q", fault.Clip(name))
}

// PutSubscription creates or replaces a subscription. secret is for a new webhook. Events with a number stay as they
// are; a subscription does not change its kind.
func (s *Store) PutSubscription(ctx context.Context, by db.By, v outbox.Subscription, secret []byte, version int64) (created bool, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		var kind string
		created, err = t.LockVersion(ctx, version, `SELECT version, false FROM postern.subscription
			WHERE context_id = $1 AND name = $2 AND removed_at IS NULL FOR UPDATE`, by.Context, v.Name)
		if err != nil {
			return err
		}
		if !created {
			if err := t.Conn.QueryRow(ctx, `SELECT kind FROM postern.subscription WHERE context_id = $1 AND name = $2 AND removed_at IS NULL`, by.Context, v.Name).
				Scan(&kind); err != nil {
				return err
			}
			if kind != v.Kind {
				return fault.At("/kind", "kind %q: subscription %q is of kind %s, which does not change: delete it, or choose another name", v.Kind, v.Name, kind)
			}
		}
		b := &pgx.Batch{}
		events, include := v.Events, v.Include
		if events == nil {
			events = []outbox.Event{}
		}
		if include == nil {
			include = []string{}
		}
		if created {
			b.Queue(`WITH made AS (INSERT INTO postern.subscription (context_id, name, kind, url, events, filter, on_error, include, secret, created_at)
					VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, coalesce($10::timestamptz, clock_timestamp())) RETURNING subscription_id)
				INSERT INTO postern.checkpoint (subscription_id) SELECT subscription_id FROM made`,
				by.Context, v.Name, v.Kind, v.URL, events, v.Filter, v.OnError, include, secret, s.Clock())
		} else {
			b.Queue(`UPDATE postern.subscription SET url = $3, events = $4, filter = $5, on_error = $6, include = $7, version = version + 1,
				since = CASE WHEN (events, filter) IS DISTINCT FROM ($4, $5) THEN NULL ELSE since END -- complete for what it takes now
				WHERE context_id = $1 AND name = $2 AND removed_at IS NULL`, by.Context, v.Name, v.URL, events, v.Filter, v.OnError, include)
		}
		s.AuditIn(b, by, "put", "/subscriptions/"+v.Name)
		return t.Commit(ctx, b)
	})
	if err != nil {
		return false, err
	}
	if err := s.begin(ctx, by.Context, v.Name); err != nil {
		return created, err
	}
	return created, s.Reconfigured(ctx)
}

// begin says from when on a subscription that has been committed is complete: see fanout.go. Where it is
// not reached, the first numbering does the same.
func (s *Store) begin(ctx context.Context, contextID int32, name string) error {
	_, err := s.Exec(ctx, `UPDATE postern.subscription SET since = coalesce($3::timestamptz, clock_timestamp()) + $4::interval
		WHERE context_id = $1 AND name = $2 AND removed_at IS NULL AND since IS NULL`, contextID, name, s.Clock(), listenersMaxAge)
	return err
}

// endDeliveriesSQL ends what had not gone out of subscriptions that are deleted.
const endDeliveriesSQL = `UPDATE postern.delivery
	SET state = 'failed', next_at = NULL, ended_at = coalesce($2::timestamptz, clock_timestamp()),
		error = 'the subscription was deleted'
	WHERE subscription_id = ANY ($1) AND state IN ('pending', 'queued')`

// RemoveSubscription ends a subscription. Its deliveries that had not gone out end as failed.
func (s *Store) RemoveSubscription(ctx context.Context, by db.By, name string) error {
	err := s.onSubscription(ctx, by, "delete", name, func(b *pgx.Batch, id int32, now time.Time) {
		b.Queue(`UPDATE postern.subscription SET removed_at = $2, version = version + 1 WHERE subscription_id = $1`, id, now)
		b.Queue(endDeliveriesSQL, []int32{id}, now)
		b.Queue(`DELETE FROM postern.fanout WHERE subscription_id = $1`, id)
		b.Queue(`DELETE FROM postern.checkpoint WHERE subscription_id = $1`, id)
	})
	if err != nil {
		return err
	}
	return s.Reconfigured(ctx)
}

// onSubscription runs statements behind the lock of a subscription's row.
func (s *Store) onSubscription(ctx context.Context, by db.By, action, name string, do func(b *pgx.Batch, id int32, now time.Time)) error {
	return s.Run(ctx, func(t *db.Txn) error {
		var id int32
		var version int64
		var now time.Time
		b := &pgx.Batch{}
		b.Queue(`SELECT subscription_id, version FROM postern.subscription WHERE context_id = $1 AND name = $2 AND removed_at IS NULL FOR UPDATE`, by.Context, name).
			Query(func(rows pgx.Rows) error {
				_, err := pgx.ForEachRow(rows, []any{&id, &version}, func() error { return nil })
				return err
			})
		s.ReadNow(b, &now)
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if id == 0 {
			return noSubscription(name)
		}
		if err := by.Seen(version); err != nil {
			return err
		}
		b = &pgx.Batch{}
		do(b, id, now)
		s.AuditIn(b, by, action, "/subscriptions/"+name)
		return t.Commit(ctx, b)
	})
}

// EnableSubscription lets a webhook be called again, at once and from where it stopped; or stops it, while
// its events go on being kept.
func (s *Store) EnableSubscription(ctx context.Context, by db.By, name string, enabled bool) (r pg.LeverResult, err error) {
	action := "disable"
	if enabled {
		action = "enable"
	}
	err = s.onSubscription(ctx, by, action, name, func(b *pgx.Batch, id int32, now time.Time) {
		b.Queue(`UPDATE postern.subscription SET enabled = $2, disabled_reason = CASE WHEN $2 THEN '' ELSE $3 END, failing_since = NULL, version = version + 1
			WHERE subscription_id = $1 AND enabled <> $2 RETURNING version`, id, enabled, pg.Because("disabled", by.Reason)).Query(func(rows pgx.Rows) error {
			r.Changed = rows.Next()
			rows.Close()
			return rows.Err()
		})
		if enabled {
			b.Queue(`UPDATE postern.delivery SET next_at = least(next_at, $2) WHERE subscription_id = $1 AND state = 'pending'`, id, now)
		}
	})
	s.RingHere()
	return r, err
}

// RotateSecret makes secret the one that signs; the one before signs beside it for a day, and so do those of rotations
// before, for the rest of theirs: where the answer of a rotation was lost and it is made again, receivers have one of
// these. Conflict: too many sign.
func (s *Store) RotateSecret(ctx context.Context, by db.By, name string, secret []byte) error {
	v, err := s.Subscription(ctx, by.Context, name)
	if err != nil {
		return err
	}
	if v.Kind != "webhook" {
		return fault.New(fault.Conflict, "wrong_state", "subscription %q is of kind %s: only a webhook has a secret", name, v.Kind)
	}
	return s.onSubscription(ctx, by, "rotate_secret", name, func(b *pgx.Batch, id int32, now time.Time) {
		b.Queue(`UPDATE postern.subscription s
			SET secret = $2, secret_before = s.secret, secret_until = $4, version = s.version + 1,
				(secret_older, older_until) = (
					SELECT coalesce(array_agg(o.secret), '{}'), coalesce(array_agg(o.until), '{}')
					FROM unnest(array_prepend(s.secret_before, s.secret_older),
						array_prepend(s.secret_until, s.older_until)) o(secret, until)
					WHERE o.until > $3)
			WHERE s.subscription_id = $1`, id, secret, now, now.Add(24*time.Hour))
	})
}

// TestSubscription makes an event that only this subscription gets. It goes the way of all others.
func (s *Store) TestSubscription(ctx context.Context, by db.By, name string) (id string, err error) {
	err = s.onSubscription(ctx, by, "test", name, func(b *pgx.Batch, sub int32, now time.Time) {
		b.Queue(`WITH n AS (UPDATE postern.subscription SET tests = tests + 1 WHERE subscription_id = $1 RETURNING tests)
			INSERT INTO postern.fanout (subscription_id, at, queue_id, seq, event, day) SELECT $1, $2, 0, tests, 'test', $3 FROM n
			RETURNING seq`, sub, now, outbox.DayOf(now).Time()).QueryRow(func(row pgx.Row) error {
			d := DeliveryID{Track: sub, ID: outbox.ID{Day: outbox.DayOf(now)}, Event: string(outbox.EventTest)}
			err := row.Scan(&d.ID.Seq)
			id = d.String()
			return err
		})
	})
	s.RingHere()
	return id, err
}

// Redeliver makes a webhook's deliveries of events in [since, until) due once more, in the order of their
// queues: those that failed for good, or all. Returns how many.
func (s *Store) Redeliver(ctx context.Context, by db.By, name string, since, until time.Time, all bool) (n int64, err error) {
	states := []string{"failed"}
	if all {
		states = append(states, "delivered")
	}
	err = s.onSubscription(ctx, by, "redeliver", name, func(b *pgx.Batch, id int32, now time.Time) {
		b.Queue(`WITH again AS (UPDATE postern.delivery SET state = 'queued', ended_at = NULL, first_at = NULL, error = NULL
				WHERE subscription_id = $1 AND cursor IS NOT NULL AND at >= $2 AND at < $3 AND state = ANY ($4) RETURNING queue_id)
			SELECT count(*) FROM again`, id, since, until, states).QueryRow(func(row pgx.Row) error { return row.Scan(&n) })
		b.Queue(promoteQueuedSQL, id, now)
	})
	s.RingHere()
	return n, err
}

// promoteQueuedSQL is promoteSQL for every queue that has something queued.
const promoteQueuedSQL = `WITH q AS MATERIALIZED (SELECT DISTINCT queue_id FROM postern.delivery WHERE subscription_id = $1 AND state = 'queued')
	UPDATE postern.delivery d SET state = 'pending', next_at = $2
	FROM q CROSS JOIN LATERAL (SELECT x.seq, x.day, x.event FROM postern.delivery x
		WHERE x.subscription_id = $1 AND x.queue_id = q.queue_id AND x.state = 'queued'
			AND NOT EXISTS (SELECT FROM postern.delivery y WHERE y.subscription_id = $1 AND y.queue_id = q.queue_id AND y.state = 'pending')
		ORDER BY x.cursor LIMIT 1) h
	WHERE (d.queue_id, d.seq, d.day, d.subscription_id, d.event) = (q.queue_id, h.seq, h.day, $1, h.event)`
