package deliveries

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// streamName is that of the subscription behind the stream of a context; no name that people give begins so.
const streamName = ":stream"

// streamKept is how long the stream of a context goes on being numbered without a reader.
const streamKept = 24 * time.Hour

// ContextStream returns the subscription behind the stream of a context, which comes into being with the
// first one.
func (s *Store) ContextStream(ctx context.Context, contextID int32) (*Subscription, error) {
	v, err := s.Subscription(ctx, contextID, streamName)
	if fault.KindOf(err) == fault.NotFound {
		_, err = s.PutSubscription(ctx, db.By{Context: contextID, Actor: "service", Via: "stream"},
			outbox.Subscription{Name: streamName, Kind: "stream",
				Events: outbox.TransactionEvents, OnError: "skip"}, nil, -1)
		if err != nil && fault.KindOf(err) != fault.Conflict { // somebody else was first
			return nil, err
		}
		v, err = s.Subscription(ctx, contextID, streamName)
	}
	if err != nil {
		return nil, err
	}
	if v.Since == nil { // its begin is not written yet
		if err := s.begin(ctx, contextID, streamName); err != nil {
			return nil, err
		}
		if v, err = s.Subscription(ctx, contextID, streamName); err != nil {
			return nil, err
		}
	}
	return v, s.UseStream(ctx, v.ID)
}

// UseStream says that somebody reads the stream of a context.
func (s *Store) UseStream(ctx context.Context, id int32) error {
	_, err := s.Exec(ctx, `UPDATE postern.subscription SET used_at = coalesce($2::timestamptz, clock_timestamp())
		WHERE subscription_id = $1 AND (used_at IS NULL OR used_at < coalesce($2::timestamptz, clock_timestamp()) - interval '30 s')`, id, s.Clock())
	return err
}

// TidySubscriptions ends streams that were not read for a day, drops what a process that had not heard of the end of a
// subscription told it since, and ends deliveries of deleted webhooks, which are never made, and would keep their
// days for ever.
func (s *Store) TidySubscriptions(ctx context.Context) error {
	rows, err := s.Pool().Query(ctx, `SELECT context_id FROM postern.subscription WHERE kind = 'stream' AND removed_at IS NULL
		AND coalesce(used_at, created_at) < coalesce($1::timestamptz, clock_timestamp()) - $2::interval`, s.Clock(), streamKept)
	if err != nil {
		return db.Known(err)
	}
	var contexts []int32
	for rows.Next() {
		var id int32
		if err := rows.Scan(&id); err != nil {
			return err
		}
		contexts = append(contexts, id)
	}
	errs := []error{db.Known(rows.Err())}
	for _, id := range contexts {
		errs = append(errs, s.RemoveSubscription(ctx,
			db.By{Context: id, Actor: "service", Via: "sweep", Reason: "it was not read for a day"}, streamName))
	}
	_, err = s.Exec(ctx, `DELETE FROM postern.fanout f USING postern.subscription s WHERE s.subscription_id = f.subscription_id AND s.removed_at IS NOT NULL`)
	return errors.Join(append(errs, err, s.endLeft(ctx))...)
}

// endLeft ends the deliveries of deleted webhooks that have not ended. Each delivery becomes due behind the lock of its
// subscription, and a deleted subscription is refused there, so that these come from a process of before. A deleted
// subscription stays deleted: one of the same name has another row. So the update needs no lock.
func (s *Store) endLeft(ctx context.Context) error {
	rows, err := s.Looks.Query(ctx, `SELECT s.subscription_id FROM postern.subscription s
		WHERE s.kind = 'webhook' AND s.removed_at IS NOT NULL
			AND (EXISTS (SELECT FROM postern.delivery d
					WHERE d.subscription_id = s.subscription_id AND d.state = 'pending' OFFSET 0)
				OR EXISTS (SELECT FROM postern.delivery d
					WHERE d.subscription_id = s.subscription_id AND d.state = 'queued' OFFSET 0))`)
	if err != nil {
		return db.Known(err)
	}
	deleted, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil || len(deleted) == 0 {
		return db.Known(err)
	}
	_, err = s.Exec(ctx, endDeliveriesSQL, deleted, s.Clock())
	return err
}
