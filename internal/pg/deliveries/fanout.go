package deliveries

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// Subscriptions are told of an event in two steps. The SQL transaction in which the event happens only inserts a narrow
// row of fanout for each subscription of its context that may want it. Later, one worker per subscription gives
// positions to the rows that have committed, under the subscription's row (deliver.go). If positions were given in the
// first step, every batch would hold the lock of that row until its fsync.
//
// Why a subscription is complete from since on, although processes read the list of subscriptions only
// now and then: since is a time of the database's clock read in a transaction after the subscription was
// committed, plus listenersMaxAge. A SQL transaction in which something happens has its own reading of
// that clock, e.now, which is also the time of its events. It goes by a list that was read at readAt, on
// the same clock and before the list's snapshot, and readAt > e.now - listenersMaxAge, or it reads the
// list again itself. So with e.now >= since, readAt is after a moment at which the subscription had
// been committed, and the list has it. No process need be fast for this, nor alive, nor share a clock.
//
// Why the order of a queue is kept: each row of fanout draws its number from a sequence, behind the lock of the queue's
// row, which is held until the commit. So of two SQL transactions in one queue the later one has the higher numbers,
// whatever the clock says, and becomes visible later; within one, rows are inserted in the order of position and then
// event. Numbering sees a prefix of what a queue committed, and numbers it in that order. The order holds across a
// crash and a failover, too: a sequence never falls behind a number that has committed.
const listenersMaxAge = 2 * time.Second

// listeners is one reading of who wants to hear of what; it is never changed.
type listeners struct {
	readAt time.Time
	of     map[int32][]*listener // by context; nil where there is no listener
}

type listener struct {
	id int32
	outbox.Subscription
}

const listenersSQL = `SELECT subscription_id, context_id, events, filter FROM postern.subscription WHERE removed_at IS NULL`

func scanListeners(rows pgx.Rows) (*listeners, error) {
	l := &listeners{}
	for rows.Next() {
		var of int32
		s := &listener{}
		if err := rows.Scan(&s.id, &of, &s.Events, &s.Filter); err != nil {
			return nil, err
		}
		if l.of == nil {
			l.of = map[int32][]*listener{}
		}
		l.of[of] = append(l.of[of], s)
	}
	return l, rows.Err()
}

// subscribers is the Teller of subscriptions and callbacks.
type subscribers struct {
	list atomic.Pointer[listeners]
}

func newSubscribers() *subscribers {
	t := &subscribers{}
	t.list.Store(&listeners{})
	return t
}

// Read reads who listens.
func (t *subscribers) Read(b *pgx.Batch) (done func(at time.Time)) {
	var heard *listeners
	b.Queue(listenersSQL).Query(func(rows pgx.Rows) (err error) {
		heard, err = scanListeners(rows)
		return err
	})
	return func(at time.Time) {
		heard.readAt = at
		t.list.Store(heard)
	}
}

// Kept keeps what has a delivery that is still to be made, and removes deliveries with their transactions: their
// subscriptions say how far their events are dropped.
func (t *subscribers) Kept() (keeps, forgets string) {
	return `EXISTS (SELECT FROM postern.delivery_old d
			WHERE (d.queue_id, d.seq) = (o.queue_id, o.seq)
				AND d.state IN ('pending', 'queued'))`,
		`deliveries AS (DELETE FROM postern.delivery_old x
			USING gone g
			WHERE (x.queue_id, x.seq) = (g.queue_id, g.seq)
			RETURNING x.subscription_id, x.cursor),
		told AS (UPDATE postern.subscription s
			SET dropped = greatest(s.dropped, d.cursor)
			FROM (SELECT subscription_id, max(cursor) AS cursor
				FROM deliveries
				WHERE subscription_id > 0
				GROUP BY subscription_id) d
			WHERE s.subscription_id = d.subscription_id),`
}

// Of returns who listens, of a reading that a SQL transaction whose events are of now may go by. Where the last one is
// too old it reads again, inside the SQL transaction.
func (t *subscribers) Of(ctx context.Context, send func(context.Context, *pgx.Batch) error, now time.Time) (*listeners, error) {
	l := t.list.Load()
	if now.Sub(l.readAt) < listenersMaxAge {
		return l, nil
	}
	again := &pgx.Batch{}
	again.Queue(listenersSQL).Query(func(rows pgx.Rows) (err error) {
		l, err = scanListeners(rows)
		return err
	})
	if err := send(ctx, again); err != nil {
		return nil, err
	}
	l.readAt = now
	t.list.Store(l)
	return l, nil
}

// Tell adds to c a row for each subscription of a context that may want an event.
func (l *listeners) Tell(c *db.Columns, now time.Time, of int32, id outbox.ID, event outbox.Event) {
	for _, s := range l.of[of] {
		if s.Wants(event) {
			c.N++
			c.Add(s.id, now, id.Queue, id.Seq, string(event), id.Day.Time())
		}
	}
}

// tellWorkers adds to b a delivery for each end that its worker is to hear, and says whether there is any.
func tellWorkers(b *pgx.Batch, news pg.News) bool {
	c := db.Columns{}
	for _, o := range news.Outcomes {
		if o.Hook != "" {
			c.N++
			c.Add(o.ID.Queue, o.ID.Seq, o.ID.Day.Time(), o.Context, string(o.Hook), news.Now, news.Now)
		}
	}
	if c.N > 0 {
		hookInsert.Queue(b, c)
	}
	return c.N > 0
}

// init has connections that settle plan what hooks of workers need: most dispatchers have some.
func init() { pg.Rehearsed(func(b *pgx.Batch, news pg.News) { tellWorkers(b, news) }) }

var hookInsert = db.InsertMany("delivery", "",
	"queue_id bigint",
	"seq bigint",
	"day date",
	"context_id int",
	"event text",
	"at timestamptz",
	"next_at timestamptz",
)

// Tell adds to b what subscriptions, callbacks and hooks of workers are told of news.
func (t *subscribers) Tell(ctx context.Context, send func(context.Context, *pgx.Batch) error, b *pgx.Batch, news pg.News) (told bool, err error) {
	hooked := tellWorkers(b, news)
	callBack(b, news)
	l, err := t.Of(ctx, send, news.Now)
	if err != nil || l.of == nil {
		return hooked, err
	}
	c := db.Columns{}
	for _, e := range inOrder(news) {
		l.Tell(&c, news.Now, e.of, e.id, e.event)
	}
	if c.N > 0 {
		FanoutInsert.Queue(b, c)
	}
	return hooked || c.N > 0, nil
}

type happened struct {
	of    int32 // the context
	id    outbox.ID
	event outbox.Event
}

// inOrder lists what a commit accepts and ends in the order in which it is told: of a queue by position, and of one
// transaction its end last.
func inOrder(news pg.News) (list []happened) {
	for _, t := range news.Accepted {
		list = append(list, happened{t.ContextID, t.ID, outbox.EventAccepted})
	}
	for _, o := range news.Outcomes {
		list = append(list, happened{o.Context, o.ID, outbox.EventOf(o.State)})
	}
	slices.SortStableFunc(list, func(a, b happened) int {
		return cmp.Or(cmp.Compare(a.id.Queue, b.id.Queue), cmp.Compare(a.id.Seq, b.id.Seq))
	})
	return list
}

// tellOfSQL tells the subscriptions of a context of an event. It reads them itself, in the SQL transaction in which the
// event happens, whose time was read before: so it sees all that are complete from that time on.
const tellOfSQL = `INSERT INTO postern.fanout (subscription_id, at, queue_id, seq, event, day)
	SELECT s.subscription_id, $2, $3, $4, $5, $6
	FROM postern.subscription s
	WHERE s.context_id = $1 AND s.removed_at IS NULL AND (s.events = '{}' OR $5 = ANY (s.events))`

// TellOf adds to b that an event has happened that is none of a transaction, at now, which was read behind the lock of
// what it happened to. It returns whether any subscription may hear of it. Where the list of subscriptions is too old,
// the statement that tells reads it, so that no round trip is added.
func (t *subscribers) TellOf(b *pgx.Batch, now time.Time, of int32, id outbox.ID, event outbox.Event) bool {
	if l := t.list.Load(); now.Sub(l.readAt) < listenersMaxAge &&
		!slices.ContainsFunc(l.of[of], func(s *listener) bool { return s.Wants(event) }) {
		return false
	}
	b.Queue(tellOfSQL, of, now, id.Queue, id.Seq, string(event), id.Day.Time())
	return true
}

// FanoutInsert adds rows of fanout, in the order of the values that listeners.Tell adds.
var FanoutInsert = db.InsertMany("fanout", "", "subscription_id int", "at timestamptz", "queue_id bigint", "seq bigint", "event text", "day date")
