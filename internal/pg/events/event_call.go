package events

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// CalledEvent is what a call of a tool must know of its event.
type CalledEvent struct {
	JSON json.RawMessage
	Map  leader.SourceMap
}

// CalledEvent returns the event whose tool is to be called: NotFound, or Conflict where its tool is not to be called
// any more under this try.
func (s *Store) CalledEvent(ctx context.Context, contextID int32, call ToolCall) (*CalledEvent, error) {
	v := &CalledEvent{}
	if _, err := uuid.Parse(call.Event); err != nil {
		return nil, fault.New(fault.NotFound, "no_event", "no event %q", fault.Clip(call.Event))
	}
	var status, outcome string
	var try int
	err := s.Db(ctx).QueryRow(ctx, `SELECT e.json, s.map, e.status, e.outcome, e.retried + 1 FROM postern.event e JOIN postern.source s ON s.source_id = e.source_id
		WHERE e.context_id = $1 AND e.event_id = $2::text::uuid`, contextID, call.Event).Scan(&v.JSON, &v.Map, &status, &outcome, &try)
	switch {
	case db.IsNoRows(err):
		return nil, fault.New(fault.NotFound, "no_event", "no event %q", fault.Clip(call.Event))
	case err != nil:
		return nil, db.Known(err)
	case outcome != "" || try != call.Try || status != leader.EventActive && status != leader.EventQueued:
		return nil, fault.New(fault.Conflict, "event_moved_on", "event %s is %s by now, at try %d: its tool is not called for try %d", call.Event, status, try, call.Try)
	}
	return v, nil
}

// LeaveToolAlone keeps for how long a tool wants to be left alone that is to be called again (its Retry-After,
// S1.11): the event is not offered before that, in whichever process the end of its call is read. It is written
// before that end, so that no reader of the end misses it; another try changes nothing.
func (s *Store) LeaveToolAlone(ctx context.Context, contextID int32, call ToolCall, wait time.Duration) error {
	_, err := s.Exec(ctx, `UPDATE postern.event SET not_before = coalesce($4::timestamptz, clock_timestamp()) + $5::interval
		WHERE context_id = $1 AND event_id = $2::text::uuid AND retried + 1 = $3 AND status = 'Active' AND outcome = ''`, contextID, call.Event, call.Try, s.Clock(), wait)
	return err
}

// tellEvent has an event know the transaction that calls its tool, or tells its result, by the place to which that was
// moved: the end that it has in its old one, and which says only so, is none for the event. Also where the event does
// not know it yet (TakeEvents, SendResults), so that it never hears of the old place. The one that tells a result once
// more has no such uid, but the event, which is Dead, knows it (tellAgain), and only what it knows is redriven again.
// The queues are locked, the event comes after them (onEvent).
func tellEvent(b *pgx.Batch, task *pg.Task) {
	which := map[string]string{leader.TypeTool: "tool", leader.TypeResult: "result"}[task.Type]
	if which == "" {
		return
	}
	if id, ok := leader.EventOfUID(task.UID); ok {
		b.Queue(fmt.Sprintf(`UPDATE postern.event SET %[1]s_queue = $4, %[1]s_seq = $5, %[1]s_day = $6, %[1]s_id = $7
			WHERE event_id = $1::text::uuid AND context_id = $2 AND status = 'Active' AND %[1]s_id IN ('', $3)
				AND $8 IN ('event:' || event_id || ':result', 'event:' || event_id || ':tool:' || (retried + 1))`, which),
			id.String(), task.ContextID, task.MovedFrom, task.ID.Queue, task.ID.Seq, task.ID.Day.Time(), task.ID.String(), task.UID)
	} else if id, ok := eventOf(&pg.Transaction{Type: task.Type, UID: task.UID, RedriveOf: task.RedriveOf, Data: task.Data}); ok {
		b.Queue(`UPDATE postern.event SET result_queue = $4, result_seq = $5, result_day = $6, result_id = $7
			WHERE event_id = $1::text::uuid AND context_id = $2 AND status = 'Dead' AND result_redriven AND result_id = $3`,
			id.String(), task.ContextID, task.MovedFrom, task.ID.Queue, task.ID.Seq, task.ID.Day.Time(), task.ID.String())
	}
}
