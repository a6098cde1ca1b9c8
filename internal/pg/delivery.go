package pg

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
)

// Delivery is a hook call that is to be made now (S2.12).
type Delivery struct {
	Hook       outbox.Hook
	Attempts   int // made so far, this one included
	CreatedAt  time.Time
	Task       *Task
	Queue      string
	Dispatcher *Dispatcher
	State      outbox.State
	Retries    int
	Attempt    int
	Fence      int64
	Fee        string
	Hash       string
	Nonce      string
	Account    string
	SenderURL  string
	Result     json.RawMessage
	Class      outbox.Class
	Code       string
	Error      string
	Now        time.Time
}

// WorkerURL is where the hook is delivered: where the transaction was executed.
func (d *Delivery) WorkerURL() string {
	if d.SenderURL != "" {
		return d.SenderURL
	}
	return d.Dispatcher.WorkerURL
}

// deliveryLease is how long a delivery that was handed out is left alone.
const deliveryLease = time.Minute

// DueDeliveries hands out up to limit hook calls that are due, each for a minute, in which nobody else
// gets it; a process that dies leaves it to the next one.
func (s *Store) DueDeliveries(ctx context.Context, limit int) (list []*Delivery, err error) {
	err = s.run(ctx, func(t *txn) error {
		list = nil
		b := &pgx.Batch{}
		b.Queue(`WITH due AS MATERIALIZED (SELECT queue_id, seq, day, hook FROM postern.delivery
				WHERE state = 'pending' AND next_at <= coalesce($1::timestamptz, clock_timestamp()) ORDER BY next_at LIMIT $2 FOR UPDATE SKIP LOCKED),
			taken AS (UPDATE postern.delivery d SET next_at = coalesce($1::timestamptz, clock_timestamp()) + $3::interval, attempts = attempts + 1
				FROM due WHERE (d.queue_id, d.seq, d.day, d.hook) = (due.queue_id, due.seq, due.day, due.hook)
				RETURNING d.queue_id, d.seq, d.day, d.hook, d.attempts, d.created_at)
			SELECT `+taskSelect+`, d.hook, d.attempts, d.created_at, coalesce(n.name, ''), o.state, o.retries, coalesce(o.attempt, 0), coalesce(o.fence, 0),
				coalesce(o.fee, ''), coalesce(o.hash, ''), coalesce(o.nonce, ''), coalesce(s.account, ''), coalesce(s.worker_url, ''), o.result,
				coalesce(o.error_class, ''), coalesce(o.error_code, ''), coalesce(o.error, ''), coalesce($1::timestamptz, clock_timestamp())
			FROM taken d
			JOIN postern.task t ON (t.queue_id, t.seq, t.day) = (d.queue_id, d.seq, d.day)
			JOIN postern.outcome o ON (o.queue_id, o.seq, o.day) = (d.queue_id, d.seq, d.day)
			LEFT JOIN postern.queue_name n ON n.queue_id = d.queue_id
			LEFT JOIN postern.sender s ON s.sender_id = o.sender_id`, s.now(), limit, deliveryLease).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				d := &Delivery{Task: &Task{}}
				if err := rows.Scan(append(d.Task.dests(), &d.Hook, &d.Attempts, &d.CreatedAt, &d.Queue, &d.State, &d.Retries, &d.Attempt, &d.Fence,
					&d.Fee, &d.Hash, &d.Nonce, &d.Account, &d.SenderURL, &d.Result, &d.Class, &d.Code, &d.Error, &d.Now)...); err != nil {
					return err
				}
				d.Task.tidy()
				list = append(list, d)
			}
			return rows.Err()
		})
		if err := t.send(ctx, b); err != nil {
			return err
		}
		for _, d := range list {
			if d.Dispatcher = s.DispatcherOf(d.Task.ContextID, d.Task.Type); d.Dispatcher == nil {
				return &dispatcherMissing{d.Task.Type}
			}
		}
		if len(list) == 0 {
			return t.rollback(ctx)
		}
		return t.commit(ctx, &pgx.Batch{})
	})
	return list, err
}

// Delivered records what came of a hook call: "delivered", "absent" (the worker has no such hook),
// "failed" (given up), or "pending" again after a delay.
func (s *Store) Delivered(ctx context.Context, d *Delivery, state string, answer json.RawMessage, message string, again time.Duration) error {
	id := d.Task.ID
	_, err := s.pool.Exec(ctx, `UPDATE postern.delivery SET state = $5, answer = $6::text::jsonb, error = $7,
			next_at = CASE WHEN $5 = 'pending' THEN coalesce($9::timestamptz, clock_timestamp()) + $8::interval END,
			ended_at = CASE WHEN $5 <> 'pending' THEN coalesce($9::timestamptz, clock_timestamp()) END
		WHERE (queue_id, seq, day, hook) = ($1, $2, $3, $4) AND state = 'pending'`,
		id.Queue, id.Seq, id.Day.Time(), string(d.Hook), state, raw(answer), nullable(message), again, s.now())
	return known(err)
}
