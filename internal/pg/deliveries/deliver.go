package deliveries

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// numberAtOnce bounds one numbering.
const numberAtOnce = 500

// disableAfter is how long a webhook may fail before it is left alone.
const disableAfter = 5 * 24 * time.Hour

// BusyTracks lists the tracks on which something is to be done: events to number, deliveries that are due.
func (s *Store) BusyTracks(ctx context.Context) ([]int32, error) {
	rows, err := s.Looks.Query(ctx, `SELECT s.subscription_id FROM postern.subscription s
		WHERE s.removed_at IS NULL AND (EXISTS (SELECT FROM postern.fanout f WHERE f.subscription_id = s.subscription_id OFFSET 0)
			OR s.kind = 'webhook' AND s.enabled AND EXISTS (SELECT FROM postern.delivery d
				WHERE d.subscription_id = s.subscription_id AND d.state = 'pending' AND d.next_at <= coalesce($1::timestamptz, clock_timestamp()) OFFSET 0))
		UNION ALL SELECT n.track FROM unnest($2::int[]) n(track) WHERE EXISTS (SELECT FROM postern.delivery d
				WHERE d.subscription_id = n.track AND d.state = 'pending' AND d.next_at <= coalesce($1::timestamptz, clock_timestamp()))`,
		s.Clock(), []int32{HookTrack, CallbackTrack})
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	return list, db.Known(err)
}

// Handed is what a pass over a track leaves to be done.
type Handed struct {
	Due     []*Delivery
	More    bool   // there was more to number than one pass takes
	Failing bool   // the endpoint has not taken anything since it last failed
	Stopped string // why the subscription was disabled in this pass
}

// Deliver is one pass over a track: it records what came of deliveries, gives positions to the events that have
// committed, lets the next of each queue go, and hands out up to room deliveries that are due.
//
// All of it happens behind the lock of the subscription's row, in one SQL transaction, in any process. That is why a
// position, once given, has no other behind it that commits later: positions are given under this lock, which is held
// until the commit, to rows that are visible, and so have committed. It is why of one queue at most one delivery is
// pending, the earliest that has not ended: only the holder of the lock ends or adds one. And it is why two passes at
// once give each position once. A pass without receipts does not wait for the lock: its holder does the same work. A
// process that dies loses its lock and its SQL transaction, and nothing else.
func (s *Store) Deliver(ctx context.Context, track int32, done []Receipt, room int) (h Handed, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		p := &pass{s: s, track: track, done: done, room: room}
		if err := p.load(ctx, t); err != nil {
			return err
		}
		if track > 0 && p.sub == nil {
			return t.Rollback(ctx)
		}
		b := &pgx.Batch{}
		writeReceipts(b, track, done, p.now)
		if track == CallbackTrack {
			p.nextCallbacks(b)
		}
		if track > 0 {
			p.number(b)
			p.judge(b)
		}
		p.take(b)
		if err := t.Commit(ctx, b); err != nil {
			return err
		}
		if err := p.dispatchers(ctx); err != nil {
			return err
		}
		h = p.h
		return nil
	})
	return h, err
}

type pass struct {
	s     *Store
	track int32
	done  []Receipt
	room  int
	now   time.Time
	sub   *trackRow
	news  []newsRow
	h     Handed
}

// trackRow is the locked row of a subscription.
type trackRow struct {
	outbox.Subscription
	Context      int32
	Secrets      [][]byte // the present one first
	Enabled      bool
	Since        *time.Time
	Newest       int64
	FailingSince *time.Time
}

type newsRow struct {
	number     int64
	at         time.Time
	id         outbox.ID
	event      outbox.Event
	queue, typ string
}

func (p *pass) load(ctx context.Context, t *db.Txn) error {
	b := &pgx.Batch{}
	if p.track > 0 {
		lock := ` FOR UPDATE`
		if len(p.done) == 0 {
			lock += ` SKIP LOCKED`
		}
		b.Queue(`SELECT context_id, kind, url, events, filter, on_error, include, secret || ARRAY(SELECT o.secret
					FROM unnest(array_prepend(secret_before, secret_older),
						array_prepend(secret_until, older_until)) o(secret, until)
					WHERE o.until > coalesce($2::timestamptz, clock_timestamp())),
				enabled, since, newest, failing_since
			FROM postern.subscription
			WHERE subscription_id = $1 AND removed_at IS NULL`+lock, p.track, p.s.Clock()).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				p.sub = &trackRow{}
				r := p.sub
				if err := rows.Scan(&r.Context, &r.Kind, &r.URL, &r.Events, &r.Filter, &r.OnError, &r.Include, &r.Secrets,
					&r.Enabled, &r.Since, &r.Newest, &r.FailingSince); err != nil {
					return err
				}
			}
			return rows.Err()
		})
	}
	p.s.ReadNow(b, &p.now)
	if err := t.Send(ctx, b); err != nil || p.sub == nil {
		return err
	}
	b = &pgx.Batch{}
	b.Queue(`SELECT f.number, f.at, f.queue_id, f.seq, f.day - '1970-01-01', f.event, coalesce(n.name, 'processor:' || p.name, j.queue, ''),
			coalesce(t.type, 'job.' || j.script_type, '')
		FROM postern.fanout f
		LEFT JOIN postern.task t ON (t.queue_id, t.seq, t.day) = (f.queue_id, f.seq, f.day)
		LEFT JOIN postern.queue_name n ON n.queue_id = f.queue_id
		LEFT JOIN postern.processor p ON f.event IN ('result', 'timeout') AND p.processor_id = f.queue_id - $3::bigint
		LEFT JOIN LATERAL postern.told_by(f.event, f.queue_id, f.seq) j ON true
		WHERE f.subscription_id = $1 ORDER BY f.number LIMIT $2`, p.track, numberAtOnce, outbox.OfProcessor(0, 0, 0).Queue).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var n newsRow
			if err := rows.Scan(&n.number, &n.at, &n.id.Queue, &n.id.Seq, &n.id.Day, &n.event, &n.queue, &n.typ); err != nil {
				return err
			}
			p.news = append(p.news, n)
		}
		return rows.Err()
	})
	return t.Send(ctx, b)
}

// dispatchers finds those of hooks; one that another process made a moment ago is read first.
func (p *pass) dispatchers(ctx context.Context) error {
	find := func(d *Delivery) bool {
		if d.Hook != nil {
			d.Hook.Dispatcher = p.s.DispatcherOf(d.Hook.Task.ContextID, d.Hook.Task.Type)
		}
		return d.Hook != nil && d.Hook.Dispatcher == nil
	}
	if !slices.ContainsFunc(p.h.Due, find) {
		return nil
	}
	err := p.s.Refresh(ctx)
	p.h.Due = slices.DeleteFunc(p.h.Due, find)
	return err
}

// number turns what has committed into deliveries, in its order, and lets the next of each queue go.
func (p *pass) number(b *pgx.Batch) {
	touched := map[int64]bool{}
	for _, r := range p.done {
		if r.State != "pending" {
			touched[r.ID.Queue] = true
		}
	}
	sub := p.sub
	state := "kept"
	if sub.Kind == "webhook" {
		state = "queued"
	}
	rows, gone := db.Columns{}, []int64{}
	for _, n := range p.news {
		gone = append(gone, n.number)
		if !sub.Filter.Takes(n.queue, n.typ, n.event) || n.event != outbox.EventTest && !sub.Wants(n.event) {
			continue
		}
		sub.Newest = p.s.Position(sub.Newest, p.now)
		rows.Add(n.id.Queue, n.id.Seq, n.id.Day.Time(), p.track, string(n.event), sub.Context, sub.Newest, n.at, state, p.now)
		touched[n.id.Queue] = true
	}
	if len(p.news) > 0 {
		p.h.More = len(p.news) == numberAtOnce
		b.Queue(fanoutDelete, p.track, gone)
	}
	if len(rows.Cols) > 0 {
		eventInsert.Queue(b, rows)
	}
	if state == "queued" && len(touched) > 0 {
		b.Queue(promoteSQL, p.track, slices.Sorted(maps.Keys(touched)), p.now)
	}
}

var eventInsert = db.InsertMany("delivery", "", "queue_id bigint", "seq bigint", "day date", "subscription_id int", "event text", "context_id int",
	"cursor bigint", "at timestamptz", "state text", "created_at timestamptz")

const fanoutDelete = `DELETE FROM postern.fanout f
	USING unnest($2::bigint[]) n(number)
	WHERE f.subscription_id = $1 AND f.number = n.number`

// promoteSQL lets the earliest that is queued of each queue go, unless one of the queue is pending. The caller holds
// the subscription's row.
const promoteSQL = `UPDATE postern.delivery d SET state = 'pending', next_at = $3
	FROM unnest($2::bigint[]) q(queue_id)
	CROSS JOIN LATERAL (SELECT x.seq, x.day, x.subscription_id, x.event FROM postern.delivery x
		WHERE x.subscription_id = $1 AND x.queue_id = q.queue_id AND x.state = 'queued'
			AND NOT EXISTS (SELECT FROM postern.delivery y WHERE y.subscription_id = $1 AND y.queue_id = q.queue_id AND y.state = 'pending')
		ORDER BY x.cursor LIMIT 1) h
	WHERE (d.queue_id, d.seq, d.day, d.subscription_id, d.event) = (q.queue_id, h.seq, h.day, h.subscription_id, h.event)`

// judge writes what the subscription is by now: how far it is numbered, whether its endpoint works.
func (p *pass) judge(b *pgx.Batch) {
	sub, failing, worked, failed := p.sub, p.sub.FailingSince, false, false
	for _, r := range p.done {
		worked = worked || r.State == "delivered"
		failed = failed || r.State != "delivered" && r.Try != nil
		if r.Gone {
			p.h.Stopped = "the endpoint answered 410: it wants nothing more"
		}
	}
	switch {
	case worked:
		failing = nil
	case failed && failing == nil:
		failing = &p.now
	}
	if failing != nil && failed && p.now.Sub(*failing) > disableAfter {
		p.h.Stopped = "nothing could be delivered for 5 days"
	}
	if !sub.Enabled {
		p.h.Stopped = ""
	}
	p.h.Failing = failing != nil
	if sub.Since == nil { // this transaction sees the row, so the row has committed: see fanout.go
		since := p.now.Add(listenersMaxAge)
		sub.Since = &since
		b.Queue(`UPDATE postern.subscription SET since = $2 WHERE subscription_id = $1`, p.track, since)
	}
	if p.h.Stopped != "" {
		sub.Enabled = false
		b.Queue(`UPDATE postern.subscription SET enabled = false, disabled_reason = $2, version = version + 1 WHERE subscription_id = $1`, p.track, p.h.Stopped)
	}
	if len(p.news)+len(p.done) > 0 {
		b.Queue(`UPDATE postern.subscription SET newest = $2, failing_since = $3 WHERE subscription_id = $1
			AND (newest, failing_since) IS DISTINCT FROM ($2, $3)`, p.track, sub.Newest, failing)
	}
}

// take hands out what is due, but what is in quarantine.
func (p *pass) take(b *pgx.Batch) {
	quarantine := p.s.QuarantineView()
	if p.room <= 0 || quarantine.Whole() {
		return
	}
	take := taking(quarantine)
	switch {
	case p.track == HookTrack:
		takeHooks(b, take, p.now, p.room, func(d *Delivery) { p.h.Due = append(p.h.Due, d) })
	case p.track == CallbackTrack:
		takeEvents(b, take, p.track, []string{"result"}, p.now, p.room, func(d *Delivery) { p.h.Due = append(p.h.Due, d) })
	case p.sub.Kind == "webhook" && p.sub.Enabled:
		if p.h.Failing {
			p.room = 1 // one probe at a time
		}
		takeEvents(b, take, p.track, p.sub.Include, p.now, p.room, func(d *Delivery) {
			d.URL, d.Block = p.sub.URL, p.sub.OnError == "block"
			d.Secrets = p.sub.Secrets
			p.h.Due = append(p.h.Due, d)
		})
	}
}
