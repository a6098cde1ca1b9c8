package events

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// eventMaker is the Maker of the transactions that call the tools of events and tell their results.
type eventMaker struct{ s *Store }

// Sources and Tools are kinds of things of the leader. Most installations have none of them.
const (
	Sources pg.Kind = "sources" // also removed ones, whose events may still be under way
	Tools   pg.Kind = "tools"
)

// eventsMade describes their maker.
func eventsMade(s *Store) pg.Made {
	return pg.Made{
		Maker:  eventMaker{s},
		As:     outbox.ByLeader,
		Owns:   func(typ, _ string) bool { return typ == leader.TypeTool || typ == leader.TypeResult },
		Awaits: awaitedByEvents,
	}
}

// awaitedByEvents are the places of the transactions for which Active events wait: of the tool, then of the result.
// Where a process died before an event knew what it had posted, only the uid leads there. Served by event_calling and
// event_reporting.
const awaitedByEvents = `SELECT e.tool_queue AS queue_id, e.tool_seq AS seq, e.tool_day AS day
	FROM postern.event e
	WHERE e.status = 'Active' AND e.outcome = ''
	UNION SELECT coalesce(e.result_queue, e.tool_queue), coalesce(e.result_seq, e.tool_seq), coalesce(e.result_day, e.tool_day)
	FROM postern.event e
	WHERE e.status = 'Active' AND e.outcome <> ''
	UNION SELECT i.queue_id, i.seq, i.day FROM (
		SELECT e.context_id, 'event:' || e.event_id || ':tool:' || e.retried + 1
		FROM postern.event e
		WHERE e.status = 'Active' AND e.outcome = '' AND e.tool_id = ''
		UNION ALL SELECT e.context_id, 'event:' || e.event_id || ':result'
		FROM postern.event e
		WHERE e.status = 'Active' AND e.outcome <> '' AND e.result_id = '') k(context_id, key)
	CROSS JOIN LATERAL (
		SELECT x.queue_id, x.seq, x.day
		FROM postern.idempotency x
		WHERE (x.context_id, x.key) = (k.context_id, k.key) OFFSET 0) i`

// May refuses nothing: an end that a lever gives to a call or a result is an end for the event like any other.
func (m eventMaker) May(db.By, string, *pg.Task) error { return nil }

// Redrive redrives a call or a result behind the lock of its event, so that of both one is redriven, and has the event
// know the transaction that tells its result once more.
func (m eventMaker) Redrive(ctx context.Context, by db.By, old *pg.Transaction, change pg.Redrive,
	post pg.Repost) (out pg.Accepted, err error) {
	event, ok := eventOf(old)
	if !ok {
		return post(ctx, nil)
	}
	queue := old.Queue
	if change.Queue != nil {
		queue = *change.Queue
	}
	err = m.s.onEvent(ctx, by.Context, event, queue, func(ctx context.Context) error {
		out, err = post(ctx, func(ctx context.Context, t *pg.Transaction) error {
			return m.s.redrivesNoEvent(ctx, by.Context, t, change)
		})
		if err == nil && !out.Replay && old.Type == leader.TypeResult {
			err = m.s.tellAgain(ctx, event, out.ID)
		}
		return err
	})
	if err != nil {
		return pg.Accepted{}, err
	}
	return out, nil
}

// Moved has the event know the new place.
func (m eventMaker) Moved(b *pgx.Batch, t *pg.Task) { tellEvent(b, t) }

// Forget removes events and the records of messages.
func (m eventMaker) Forget(ctx context.Context, before time.Time) error {
	return errors.Join(m.s.forgetEvents(ctx, before), m.s.forgetChannelMessages(ctx, before))
}

// Ended names the event whose tool was called.
func (m eventMaker) Ended(t *pg.Transaction) string {
	if t.Type != leader.TypeTool || !strings.HasPrefix(t.UID, "event:") {
		return ""
	}
	id, _ := eventOf(t)
	return "it called the tool of event " + id.String()
}
