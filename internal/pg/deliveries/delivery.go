package deliveries

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/twin"
)

// HookTrack and CallbackTrack are the tracks that belong to no subscription: of hooks, which tell workers (S2.12), and
// of callbacks, which tell the endpoints that transactions name.
const (
	HookTrack     int32 = 0
	CallbackTrack int32 = -1
)

// Delivery is something that is to be told now, to one endpoint.
type Delivery struct {
	Track    int32 // the subscription, HookTrack or CallbackTrack
	ID       outbox.ID
	Context  int32
	Type     string // of the transaction that it tells of, if it is there
	Event    string // of outbox.Events, or a hook
	Attempts int    // made so far, this one included
	FirstAt  time.Time
	Now      time.Time

	URL     string          // of the endpoint
	Body    json.RawMessage // the event; null if the transaction is gone
	At      time.Time       // when it happened
	Block   bool            // never given up
	Secrets [][]byte        // that sign it, the present one first

	Hook *HookCall // of a hook, instead of all this
}

// HookCall is a transaction as its worker's hook is told of it.
type HookCall struct {
	Task       *pg.Task
	Queue      string
	Dispatcher *pg.Dispatcher
	State      outbox.State
	Retries    int
	Attempt    int
	Fence      int64
	Fee        string
	Hash       string
	Nonce      string
	Account    string
	SenderURL  string
	// SenderAttributes are as in a lease.
	SenderAttributes json.RawMessage

	Result  json.RawMessage
	Members json.RawMessage // the other members of its worker's answer
	Class   outbox.Class
	Code    string
	Error   string
}

// WorkerURL is where the hook is delivered: where the transaction was executed.
func (d *HookCall) WorkerURL() string {
	if d.SenderURL != "" {
		return d.SenderURL
	}
	return d.Dispatcher.WorkerURL
}

// CalledAt is where it goes.
func (d *Delivery) CalledAt() string {
	if d.Hook != nil {
		return d.Hook.WorkerURL()
	}
	return d.URL
}

// Receipt is what came of one delivery.
type Receipt struct {
	*Delivery
	State   string // delivered, absent (there is no such hook), failed (given up), or pending: again later
	Again   time.Duration
	Message string          // why it was not delivered
	Try     json.RawMessage // kept for who asks; nil if the call was cut off, which counts as none
	Gone    bool            // the endpoint wants nothing more, ever (HTTP 410)
}

// deliveryLease is how long a delivery that was handed out is left alone; its call takes less.
const deliveryLease = 30 * time.Second

// takeSQL hands out what is due on a track, each for a while in which no other process gets it; a process that
// dies leaves it to the next one.
var takeSQL = takeBut("")

// takeQuietSQL is takeSQL while something is in quarantine.
var takeQuietSQL = takeBut(` AND NOT ` + quarantinedSQL)

// quarantinedSQL is the condition that a delivery tells of something in quarantine.
const quarantinedSQL = `EXISTS (SELECT FROM postern.quarantine x
	LEFT JOIN postern.task t ON (t.queue_id, t.seq, t.day) = (delivery.queue_id, delivery.seq, delivery.day)
	WHERE (x.context_id IS NULL OR x.context_id = delivery.context_id)
		AND (x.type IS NULL OR x.type = t.type)
	OFFSET 0)`

// takeBut is takeSQL without the deliveries that do not fulfil a condition.
func takeBut(condition string) string {
	return `WITH due AS MATERIALIZED (SELECT queue_id, seq, day, subscription_id, event FROM postern.delivery
		WHERE subscription_id = $1 AND state = 'pending' AND next_at <= $2` + condition + ` ORDER BY next_at LIMIT $3 FOR UPDATE SKIP LOCKED),
	taken AS (UPDATE postern.delivery d SET next_at = $2::timestamptz + $4::interval, attempts = attempts + 1, first_at = coalesce(first_at, $2)
		FROM due WHERE (d.queue_id, d.seq, d.day, d.subscription_id, d.event) = (due.queue_id, due.seq, due.day, due.subscription_id, due.event)
		RETURNING d.context_id, d.queue_id, d.seq, d.day, d.event, d.attempts, d.first_at, d.at, d.url) `
}

// taking is the beginning of the statement that takes deliveries.
func taking(q *pg.Quarantined) string {
	if q.Any() {
		return takeQuietSQL
	}
	return takeSQL
}

func takeHooks(b *pgx.Batch, take string, now time.Time, room int, add func(*Delivery)) {
	b.Queue(take+`SELECT `+pg.TaskSelect+`, d.event, d.attempts, d.first_at, coalesce(n.name, ''), o.state, o.retries, coalesce(o.attempt, 0), coalesce(o.fence, 0),
			coalesce(o.fee, ''), coalesce(o.hash, ''), coalesce(o.nonce, ''), coalesce(s.account, ''), coalesce(s.worker_url, ''),
			nullif(s.attributes, '{}'), o.result, o.members,
			coalesce(o.error_class, ''), coalesce(o.error_code, ''), coalesce(o.error, '')
		FROM taken d
		JOIN postern.task t ON (t.queue_id, t.seq, t.day) = (d.queue_id, d.seq, d.day)
		JOIN postern.outcome o ON (o.queue_id, o.seq, o.day) = (d.queue_id, d.seq, d.day)
		LEFT JOIN postern.queue_name n ON n.queue_id = d.queue_id
		LEFT JOIN postern.sender s ON s.sender_id = o.sender_id`, HookTrack, now, room, deliveryLease).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			h := &HookCall{Task: &pg.Task{}}
			d := &Delivery{Track: HookTrack, Now: now, Hook: h}
			if err := rows.Scan(append(h.Task.Dests(), &d.Event, &d.Attempts, &d.FirstAt, &h.Queue, &h.State, &h.Retries, &h.Attempt, &h.Fence,
				&h.Fee, &h.Hash, &h.Nonce, &h.Account, &h.SenderURL, &h.SenderAttributes, &h.Result, &h.Members,
				&h.Class, &h.Code, &h.Error)...); err != nil {
				return err
			}
			h.Task.Tidy()
			d.ID, d.Context, d.Type = h.Task.ID, h.Task.ContextID, h.Task.Type
			add(d)
		}
		return rows.Err()
	})
}

// lie has a callback tell another end, where that fault is planted.
func (d *Delivery) lie() {
	if twin.Planted("callback_tells_another_end") && d.Track == CallbackTrack {
		d.Body = bytes.Replace(d.Body, []byte(`"DONE"`), []byte(`"FAILED"`), 1)
	}
}

func takeEvents(b *pgx.Batch, take string, track int32, include []string, now time.Time, room int, add func(*Delivery)) {
	b.Queue(take+`SELECT d.context_id, coalesce(t.type, ''), d.queue_id, d.seq, d.day - '1970-01-01', coalesce(postern.salt(t.created_at, t.moved_from), 0), d.event, d.attempts, d.first_at, d.at, coalesce(d.url, ''),
			postern.event_data(d.queue_id, d.seq, d.day, d.event, d.at, $5)
		FROM taken d LEFT JOIN postern.task t ON (t.queue_id, t.seq, t.day) = (d.queue_id, d.seq, d.day)
		ORDER BY d.at, d.queue_id, d.seq, d.event`, track, now, room, deliveryLease, include).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			d := &Delivery{Track: track, Now: now}
			if err := rows.Scan(&d.Context, &d.Type, &d.ID.Queue, &d.ID.Seq, &d.ID.Day, &d.ID.Salt, &d.Event, &d.Attempts, &d.FirstAt, &d.At, &d.URL, &d.Body); err != nil {
				return err
			}
			d.lie()
			add(d)
		}
		return rows.Err()
	})
}

// receiptsSQL finds each delivery by its key. The track is a column, not a parameter, and what has a next time is
// pending: said otherwise, all deliveries of the track, or all that wait, would be read to find these.
const receiptsSQL = `WITH ended AS (UPDATE postern.delivery d SET state = n.state, error = n.error,
		next_at = CASE WHEN n.state = 'pending' THEN $11::timestamptz + n.again END,
		ended_at = CASE WHEN n.state <> 'pending' THEN $11::timestamptz END,
		attempts = CASE WHEN n.try IS NULL THEN d.attempts - 1 ELSE d.attempts END,
		tries = CASE WHEN n.try IS NULL THEN d.tries WHEN jsonb_array_length(d.tries) >= 20 THEN (d.tries - 0) || n.try::jsonb ELSE d.tries || n.try::jsonb END
	FROM ROWS FROM (unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::date[]), unnest($4::int[]), unnest($5::text[]), unnest($6::int[]),
		unnest($7::text[]), unnest($8::interval[]), unnest($9::text[]), unnest($10::text[]))
		n(queue_id, seq, day, subscription_id, event, attempts, state, again, error, try)
	WHERE (d.queue_id, d.seq, d.day, d.subscription_id, d.event) = (n.queue_id, n.seq, n.day, n.subscription_id, n.event)
		AND d.next_at IS NOT NULL AND d.attempts = n.attempts
	RETURNING d.context_id, d.subscription_id, d.state)
	INSERT INTO postern.rollup_delivery AS r (context_id, hour, subscription_id, delivered)
	SELECT e.context_id, date_trunc('hour', $11::timestamptz, 'UTC'), e.subscription_id, count(*) FROM ended e
	WHERE e.state = 'delivered' AND e.subscription_id > 0 GROUP BY 1, 3
	ON CONFLICT ON CONSTRAINT one_rollup_per_subscription DO UPDATE SET delivered = r.delivered + excluded.delivered`

// writeReceipts records what came of deliveries. A receipt of an attempt that is not the last any more (its
// lease was over, and somebody else has it) changes nothing, and is not counted. Of a subscription, whose row is
// locked, report.deliveries shows how many were delivered: counting them there would read each of the day.
func writeReceipts(b *pgx.Batch, track int32, list []Receipt, now time.Time) {
	c := db.Columns{N: len(list)}
	for _, r := range list {
		c.Add(r.ID.Queue, r.ID.Seq, r.ID.Day.Time(), track, r.Event, r.Attempts, r.State, r.Again, db.Nullable(r.Message), db.Raw(r.Try))
	}
	if len(list) > 0 {
		b.Queue(receiptsSQL, c.Args(now)...)
	}
}
