package events

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg/channels"
	"github.com/postern-dev/postern/internal/pg/db"
)

// leaderChannel is a channel of the leader in which something lies.
type leaderChannel struct {
	Context int32
	Channel int32
	Waiting bool // some were never offered
}

// LeaderWork is what there is to do about events, as of a moment ago.
type LeaderWork struct {
	Any     bool            // there is a source at all
	events  []leaderChannel // from listeners
	results []leaderChannel // from the engine
}

// LeaderWork looks where messages are offered or wait. Served by channel_message_by_state; the sources are few.
func (s *Store) LeaderWork(ctx context.Context) (w LeaderWork, err error) {
	rows, err := s.Db(ctx).Query(ctx, `SELECT c.context_id, c.channel_id, l.results,
			EXISTS (SELECT FROM postern.channel_message m WHERE m.channel_id = c.channel_id AND m.state = 'Offered' OFFSET 0),
			EXISTS (SELECT FROM postern.channel_message m WHERE m.channel_id = c.channel_id AND m.state = 'Queued' OFFSET 0)
		FROM (SELECT s.channel_id, false AS results FROM postern.source s
			UNION ALL SELECT c.channel_id, true FROM (SELECT DISTINCT context_id FROM postern.source) x JOIN postern.channel c ON c.context_id = x.context_id AND c.name = $1) l
		JOIN postern.channel c ON c.channel_id = l.channel_id
		JOIN postern.context x ON x.context_id = c.context_id AND NOT x.paused AND x.context_id <> ALL ($2)`, channels.ChannelOfResults, s.QuarantineView().Contexts())
	if err != nil {
		return w, db.Known(err)
	}
	var l leaderChannel
	var results, offered bool
	_, err = pgx.ForEachRow(rows, []any{&l.Context, &l.Channel, &results, &offered, &l.Waiting}, func() error {
		switch w.Any = true; {
		case !offered && !l.Waiting:
		case results:
			w.results = append(w.results, l)
		default:
			w.events = append(w.events, l)
		}
		return nil
	})
	return w, db.Known(err)
}

// refill offers messages that wait in a channel and were never refused, where a receiver made room. Messages that
// were refused wait for the retrier.
func (s *Store) refill(ctx context.Context, l leaderChannel) error {
	if !l.Waiting {
		return nil
	}
	_, err := channels.ConduitOf[EventRef](s.Channels, l.Channel).Offer(ctx, rand.Int64(), channels.TendMost, true)
	return err
}

// giveBack lets others have messages that this process could not deal with; err is why. It counts as no retry.
func (s *Store) giveBack(ctx context.Context, l leaderChannel, held []channels.Held[EventRef], err error) error {
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	c := channels.ConduitOf[EventRef](s.Channels, l.Channel)
	back := s.Run(ctx, func(t *db.Txn) error {
		b := &pgx.Batch{}
		if err := c.MoveIn(ctx, t, b, held, leader.ChannelMessageStale); err != nil {
			return err
		}
		return t.Commit(ctx, b)
	})
	return errors.Join(err, back)
}

// drop notes that the message about an event was dropped, in whichever process that happens. The event reads it at its
// next look.
func drop(b *pgx.Batch, channel int32, message, reason string) {
	b.Queue(`INSERT INTO postern.event_drop (event_id, reason)
		SELECT e.event_id, $3
		FROM postern.channel c
		JOIN postern.event e ON e.event_id = CASE
			WHEN (c.name = $4 OR c.name LIKE $5) AND $2 ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
			THEN $2::text::uuid END
		WHERE c.channel_id = $1 AND e.status IN ('Queued', 'Active')
		ON CONFLICT DO NOTHING`,
		channel, message, reason, channels.ChannelOfResults, channels.ChannelOfSource+"%")
}

// eventRow is an event as decisions see it, locked.
type eventRow struct {
	ID                     string
	Context                int32
	Source                 int32
	FQN, Digest            string
	Status                 string
	Fence                  int64
	Moves                  int
	Retried                int
	Outcome, Code, Error   string
	Alone                  float64 // seconds for which its tool wants to be left alone
	Tool, Result           string
	MaxRetries             int
	Overdue                bool    // the call of its tool, for stale_after: see overdueSQL
	Stayed                 float64 // seconds in its status
	Dropped                *string
	toolState, toolClass   string
	toolCode, toolError    string
	variant                string
	resultState, resultWhy string
}

// overdueSQL says of an event that the call of its tool has not ended for stale_after: a node that lives has it in hand
// since then. Behind a lane that is shut by a pause, a quarantine or a gate nothing is called, and after an outage the
// node that called is dead, and the next one asks about the call (S1.6): neither ends an event. One whose transaction
// is forgotten ends, too, since no outcome of it can come any more.
//
// cur_seq may lag behind while a node works through a queue: the call is then in hand since the one before it ended.
// The rows are read without a lock: a call that ends beside this is one that was late. OFFSET 0 has them looked for by
// their keys, and the times in front keep nearly all events from that.
const overdueSQL = `CASE WHEN e.status = 'Active' AND e.outcome = '' AND e.tool_id <> ''
				AND e.updated_at + s.stale_after < n.now
			THEN EXISTS (SELECT FROM postern.queue q
				JOIN postern.node c ON (c.node_id, c.epoch) = (q.node_id, q.node_epoch) AND c.dead_at IS NULL
					AND c.heartbeat_at + c.ttl > coalesce($3::timestamptz, clock_timestamp())
				LEFT JOIN LATERAL (SELECT o.done_at
					FROM postern.outcome o
					WHERE o.queue_id = q.queue_id AND o.seq = e.tool_seq - 1
						AND o.day BETWEEN q.head_day AND e.tool_day
					LIMIT 1) p ON true
				WHERE q.queue_id = e.tool_queue AND q.phase = 'DISPATCHING'
					AND (q.cur_seq = e.tool_seq
						OR q.cur_seq < e.tool_seq AND q.marks = 0 AND p.done_at IS NOT NULL)
					AND greatest(q.entered_at, p.done_at) + s.stale_after < n.now
				OFFSET 0)
				OR NOT EXISTS (SELECT FROM postern.task x
					WHERE (x.queue_id, x.seq, x.day) = (e.tool_queue, e.tool_seq, e.tool_day) OFFSET 0)
			ELSE false END`

// eventSelect reads events with what has become of their transactions. The outcomes are looked for by their keys. $1 is
// the clock, $2 the events, $3 the clock of leases.
const eventSelect = `SELECT e.event_id::text, e.context_id, e.source_id, e.fqn, e.digest, e.status, e.fence, e.moves, e.retried, e.outcome, e.code, e.error,
		coalesce(greatest(extract(epoch FROM e.not_before - n.now), 0), 0)::float8, e.tool_id, e.result_id, s.max_retries, ` + overdueSQL + `,
		extract(epoch FROM n.now - e.entered_at)::float8, d.reason,
		coalesce(t.state, ''), coalesce(t.error_class, ''), coalesce(t.error_code, ''), coalesce(t.error, ''), coalesce(t.result #>> '{done,variant}', ''),
		coalesce(r.state, ''), coalesce(nullif(r.error, ''), nullif(r.error_code, ''), lower(r.state), '')
	FROM postern.event e JOIN postern.source s ON s.source_id = e.source_id
	LEFT JOIN postern.event_drop d ON d.event_id = e.event_id
	LEFT JOIN LATERAL (SELECT o.state, o.error_class, o.error_code, o.error, o.result FROM postern.outcome o
		WHERE (o.queue_id, o.seq, o.day) = (e.tool_queue, e.tool_seq, e.tool_day)) t ON true
	LEFT JOIN LATERAL (SELECT o.state, o.error_code, o.error FROM postern.outcome o
		WHERE (o.queue_id, o.seq, o.day) = (e.result_queue, e.result_seq, e.result_day)) r ON true
	CROSS JOIN (SELECT coalesce($1::timestamptz, clock_timestamp())) n(now) `

func (v *eventRow) fields() []any {
	return []any{&v.ID, &v.Context, &v.Source, &v.FQN, &v.Digest, &v.Status, &v.Fence, &v.Moves, &v.Retried, &v.Outcome, &v.Code, &v.Error, &v.Alone,
		&v.Tool, &v.Result, &v.MaxRetries, &v.Overdue, &v.Stayed, &v.Dropped, &v.toolState, &v.toolClass, &v.toolCode, &v.toolError, &v.variant, &v.resultState, &v.resultWhy}
}

func collectEvents(into *[]*eventRow) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		*into = nil
		for rows.Next() {
			v := &eventRow{}
			if err := rows.Scan(v.fields()...); err != nil {
				return err
			}
			*into = append(*into, v)
		}
		return rows.Err()
	}
}

func (v *eventRow) facts() leader.EventFacts {
	return leader.EventFacts{Outcome: v.Outcome, Retried: v.Retried, MaxRetries: v.MaxRetries, Code: v.Code, Error: v.Error,
		After: time.Duration(v.Alone * float64(time.Second))}
}

// EventStep is a transition of an event, as it is counted and told.
type EventStep struct {
	ID, Tool, From, On, To string
	Stayed                 time.Duration // in From, where it is left
	Why                    string
}

// eventChange is what one transaction writes about events, which it has locked.
type eventChange struct {
	by    string
	rows  db.Columns
	moves db.Columns
	steps []EventStep
}

// apply puts a decided step into the row.
func (w *eventChange) apply(v *eventRow, on string, step leader.EventStep, now any) {
	was := v.Status
	v.Status, v.Outcome, v.Code, v.Error = step.To, step.Outcome, step.Code, step.Error
	if step.RaiseFence {
		v.Fence++
	}
	if step.CountRetry {
		v.Retried++
	}
	v.Moves++
	w.rows.Add(v.ID, was, v.Status, v.Fence, v.Moves, v.Retried, v.Outcome, v.Code, v.Error, step.Wait.Seconds())
	detail := step.Error
	if detail == "" {
		detail = step.Outcome
	}
	w.moves.Add(v.ID, v.Moves, now, was, on, v.Status, v.Fence, w.by, detail)
	w.steps = append(w.steps, EventStep{v.ID, v.FQN, was, on, v.Status, time.Duration(v.Stayed * float64(time.Second)), detail})
}

// queue adds the writes to b. A wait becomes the time of the next try.
func (w *eventChange) queue(b *pgx.Batch, now any) {
	if len(w.rows.Cols) == 0 {
		return
	}
	b.Queue(`UPDATE postern.event e SET was = n.was, status = n.status, fence = n.fence, moves = n.moves, retried = n.retried, outcome = n.outcome, code = n.code,
			error = n.error, not_before = CASE WHEN n.wait > 0 THEN $11::timestamptz + n.wait * interval '1 s' END, updated_at = $11,
			entered_at = CASE WHEN n.was = n.status THEN e.entered_at ELSE $11 END
		FROM ROWS FROM (unnest($1::uuid[]), unnest($2::text[]), unnest($3::text[]), unnest($4::bigint[]), unnest($5::int[]), unnest($6::int[]), unnest($7::text[]),
			unnest($8::text[]), unnest($9::text[]), unnest($10::float8[])) n(event_id, was, status, fence, moves, retried, outcome, code, error, wait)
		WHERE e.event_id = n.event_id`, w.rows.Args(now)...)
	moveInsert.Queue(b, w.moves)
}
