package deliveries

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/twin"
)

// Callbacks are deliveries like those of subscriptions, to the endpoint that the transaction itself names. They need
// no numbering, since a transaction ends once, so the SQL transaction that ends it writes its delivery.
//
// They are in order per queue and endpoint: one is pending unless another of its queue to the same endpoint has not
// ended, else queued; the end of one lets the next go. Why the order holds: an insert holds the row of its queue, so
// all earlier ones of the queue have committed and are seen, and no later one becomes pending while one of them has
// not ended. It can happen that one is inserted as queued while the SQL transaction that ends the one before it
// commits, and has seen no next one: then that end does not let it go, and ReleaseCallbacks finds it within five
// seconds.
//
// A callback that is queued has a place (cursor): the time, or one more than the highest place of its queue where that
// is greater. So a later one has the higher place also where the clock was set back. An insert sees all that are queued
// in its queue: the earlier ones have committed, and nothing but an insert makes a callback queued.

// callbackInsert adds deliveries of callbacks; those of one queue in one statement are in order of position.
var callbackInsert = twin.SQL("callback_out_of_turn", `INSERT INTO postern.delivery
		(queue_id, seq, day, subscription_id, context_id, event, url, at, state, next_at, cursor)
	SELECT n.queue_id, n.seq, n.day, -1, n.context_id, n.event, n.url, $7::timestamptz,
		CASE WHEN n.waits THEN 'queued' ELSE 'pending' END, CASE WHEN NOT n.waits THEN $7::timestamptz END,
		CASE WHEN n.waits THEN n.nth + greatest(postern.micros($7::timestamptz), (SELECT max(d.cursor)
			FROM postern.delivery d
			WHERE d.subscription_id = -1 AND d.queue_id = n.queue_id AND d.state = 'queued')) END
	FROM (SELECT a.*, row_number() OVER (PARTITION BY a.queue_id ORDER BY a.seq) AS nth,
			row_number() OVER (PARTITION BY a.queue_id, a.url ORDER BY a.seq) > 1
			OR EXISTS (SELECT FROM postern.delivery d WHERE d.subscription_id = -1 AND d.queue_id = a.queue_id AND d.state = 'pending' AND d.url = a.url OFFSET 0)
			OR EXISTS (SELECT FROM postern.delivery d WHERE d.subscription_id = -1 AND d.queue_id = a.queue_id AND d.state = 'queued' AND d.url = a.url OFFSET 0) AS waits
		FROM ROWS FROM (unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::date[]), unnest($4::int[]), unnest($5::text[]), unnest($6::text[]))
			a(queue_id, seq, day, context_id, event, url)) n`,
	`CASE WHEN n.waits THEN 'queued' ELSE 'pending' END, CASE WHEN NOT n.waits THEN $7::timestamptz END`,
	`'pending', $7::timestamptz`)

// nextCallbacksSQL lets the first that is queued to each endpoint go, of the queues $1 at $2, unless one to it is
// pending. Two that run it at once choose the same one, and the second finds it pending. A callback that a process of
// before has queued has no place, and goes by its time.
const nextCallbacksSQL = `UPDATE postern.delivery d SET state = 'pending', next_at = coalesce($2::timestamptz, clock_timestamp())
	FROM (SELECT DISTINCT ON (x.queue_id, x.url) x.queue_id, x.seq, x.day, x.subscription_id, x.event FROM postern.delivery x
		WHERE x.subscription_id = -1 AND x.queue_id = ANY ($1::bigint[]) AND x.state = 'queued'
			AND NOT EXISTS (SELECT FROM postern.delivery y WHERE y.subscription_id = -1 AND y.queue_id = x.queue_id AND y.state = 'pending' AND y.url = x.url)
		ORDER BY x.queue_id, x.url, coalesce(x.cursor, postern.micros(x.at)), x.seq) h
	WHERE (d.queue_id, d.seq, d.day, d.subscription_id, d.event) = (h.queue_id, h.seq, h.day, h.subscription_id, h.event) AND d.state = 'queued'`

// callBack adds the deliveries of the callbacks whom an end concerns.
func callBack(b *pgx.Batch, news pg.News) {
	c := db.Columns{}
	for _, o := range news.Outcomes {
		if o.Callback.Wants(o.State) {
			c.N++
		}
	}
	if c.N == 0 || twin.Planted("callback_in_memory") {
		return
	}
	for _, o := range news.Outcomes {
		if o.Callback.Wants(o.State) {
			c.Add(o.ID.Queue, o.ID.Seq, o.ID.Day.Time(), o.Context, string(outbox.EventOf(o.State)), o.Callback.URL)
		}
	}
	b.Queue(callbackInsert, c.Args(news.Now)...)
}

// nextCallbacks lets go what stood behind deliveries that have ended.
func (p *pass) nextCallbacks(b *pgx.Batch) {
	queues := map[int64]bool{}
	for _, r := range p.done {
		if r.State != "pending" {
			queues[r.ID.Queue] = true
		}
	}
	if len(queues) > 0 {
		b.Queue(nextCallbacksSQL, slices.Sorted(maps.Keys(queues)), p.now)
	}
}

// releaseAtOnce bounds one ReleaseCallbacks.
const releaseAtOnce = 1000

// ReleaseCallbacks lets go what is queued behind nothing, of up to 1,000 queues, and returns how many it were.
func (s *Store) ReleaseCallbacks(ctx context.Context) (int64, error) {
	rows, err := s.Looks.Query(ctx, `SELECT DISTINCT x.queue_id FROM postern.delivery x
		WHERE x.subscription_id = -1 AND x.state = 'queued'
			AND NOT EXISTS (SELECT FROM postern.delivery y WHERE y.subscription_id = -1 AND y.queue_id = x.queue_id AND y.state = 'pending' AND y.url = x.url)
		LIMIT $1`, releaseAtOnce)
	if err != nil {
		return 0, db.Known(err)
	}
	queues, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil || len(queues) == 0 {
		return 0, db.Known(err)
	}
	tag, err := s.Exec(ctx, nextCallbacksSQL, queues, s.Clock())
	return tag.RowsAffected(), err
}
