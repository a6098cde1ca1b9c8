package events_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	pgevents "github.com/postern-dev/postern/internal/pg/events"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/sequencer"
)

// calling makes a leader with room for so many calls, and so many events of each tool.
func (w *world) calling(slots, events int, tools ...string) {
	w.T.Helper()
	_, err := w.S.Events.PutSource(w.Ctx, w.By, leader.Source{Name: "app", Kind: "push", Map: leader.SourceMap{FQN: "/tool"}, MaxRetries: 3}.WithDefaults(), 0)
	w.Must(err)
	d := pgevents.ToolDispatcher()
	d.Slots = slots
	_, err = w.S.PutDispatcher(w.Ctx, w.By, d, 0)
	w.Must(err)
	var items []leader.Item
	for i := range events {
		for _, fqn := range tools {
			items = append(items, leader.Item{Identity: fmt.Sprint(fqn, i), JSON: json.RawMessage(fmt.Sprintf(`{"tool": %q}`, fqn)), FQN: fqn})
		}
	}
	_, err = w.S.Events.PushEvents(w.Ctx, w.By, "app", items, nil)
	w.Must(err)
}

func (w *world) takes(s *stores.Store, n pg.Node) int {
	w.T.Helper()
	work, err := s.Events.LeaderWork(w.Ctx)
	w.Must(err)
	taken, err := s.Events.TakeEvents(w.Ctx, work, n)
	w.Must(err)
	return taken.Messages
}

func (w *world) active() (byTool string) {
	w.T.Helper()
	w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT coalesce(string_agg(fqn || ' ' || n, ', ' ORDER BY fqn), '') FROM (SELECT fqn, count(*) AS n FROM postern.event WHERE status = 'Active' GROUP BY 1) x`).Scan(&byTool))
	return byTool
}

// Two nodes that take at one moment fill the room once: the second counts behind the lock of the first.
func TestTwoWhoTakeFillTheRoomOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.calling(6, 10, "xyz.labs.add@1", "xyz.labs.sub@1")
	one, two := w.Other(), w.Other()
	a, err := w.S.Register(w.Ctx, "a", "v", time.Minute)
	w.Must(err)
	b, err := w.S.Register(w.Ctx, "b", "v", time.Minute)
	w.Must(err)
	holds := w.Begin(w.S.Pool())
	_, err = holds.Exec(w.Ctx, `SELECT FROM postern.dispatcher WHERE type = 'leader.tool' FOR UPDATE`)
	w.Must(err)
	done := make(chan error, 2)
	for o, n := range map[*pgworld.Other]pg.Node{one: a, two: b} {
		go func() {
			work, err := o.S.Events.LeaderWork(w.Ctx)
			if err == nil {
				_, err = o.S.Events.TakeEvents(w.Ctx, work, n)
			}
			done <- err
		}()
	}
	w.AwaitBlocked(one.PID)
	w.AwaitBlocked(two.PID)
	w.Must(holds.Commit(w.Ctx))
	w.Must(<-done)
	w.Must(<-done)
	if got := w.active(); got != "xyz.labs.add@1 3, xyz.labs.sub@1 3" {
		t.Errorf("two who take with room for 6, and for 3 of one tool: %s", got)
	}
	if n := w.takes(w.S, a); n != 0 {
		t.Errorf("%d more were taken", n)
	}
	var calls int
	w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT count(*) FROM postern.task WHERE type = 'leader.tool'`).Scan(&calls))
	if calls != 6 {
		t.Errorf("%d transactions call tools", calls)
	}
}

// A process that dies after it made events Active and before it posted their calls leaves them to the next process,
// also where these events alone fill the room.
func TestWhatSomebodyTookAndDidNotPostIsPostedByTheNext(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.calling(2, 3, "xyz.labs.add@1")
	a, err := w.S.Register(w.Ctx, "a", "v", time.Minute)
	w.Must(err)
	if n := w.takes(w.S, a); n != 1 {
		t.Fatalf("%d were taken", n)
	}
	// as if it had died there: the message waits again, and nothing was posted
	for _, sql := range []string{`DELETE FROM postern.channel_message_end`, `TRUNCATE postern.task, postern.queue, postern.ready, postern.idempotency`,
		`UPDATE postern.event SET tool_queue = NULL, tool_seq = NULL, tool_day = NULL, tool_id = '' WHERE status = 'Active'`,
		`INSERT INTO postern.channel_message (channel_id, message_id, payload, state, fence, draw, created_at, updated_at)
			SELECT s.channel_id, e.event_id::text, '{"tool": "xyz.labs.add@1"}', 'Queued', 9, 1, now(), now() FROM postern.event e JOIN postern.source s USING (source_id) WHERE e.status = 'Active'`} {
		_, err := w.S.Pool().Exec(w.Ctx, sql)
		w.Must(err)
	}
	if n, got := w.takes(w.Another(2), a), w.active(); n != 1 || got != "xyz.labs.add@1 1" {
		t.Errorf("%d were taken: %s", n, got)
	}
	var named, moves, messages int
	w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT (SELECT count(*) FROM postern.event WHERE status = 'Active' AND tool_id <> ''),
		(SELECT count(*) FROM postern.event_move WHERE event = 'Taken'), (SELECT count(*) FROM postern.channel_message)`).Scan(&named, &moves, &messages))
	if named != 1 || moves != 1 || messages != 2 {
		t.Errorf("%d events name their call after %d moves, %d messages are left", named, moves, messages)
	}
}

// A tool says when it is to be called again. This time is kept with the event, so that a node that never spoke to the
// tool waits as long. An answer to another try changes nothing.
func TestAnotherNodeLeavesAToolAloneForAsLongAsItSaid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.calling(2, 1, "xyz.labs.add@1")
	a, err := w.S.Register(w.Ctx, "a", "v", time.Minute)
	w.Must(err)
	w.takes(w.S, a)
	leases := w.Claim(a, pg.Room{Total: 1, Slots: func(*pg.Dispatcher) int { return 1 }})
	var call pgevents.ToolCall
	w.Must(json.Unmarshal(leases[0].Task.Data, &call))
	w.Must(w.S.Events.LeaveToolAlone(w.Ctx, w.By.Context, call, 10*time.Minute))
	call.Try++
	w.Must(w.S.Events.LeaveToolAlone(w.Ctx, w.By.Context, call, time.Hour))
	busy := outbox.Answer{Class: outbox.ClassRetry, Code: "http_429", Message: "not so fast"}
	w.Settle(&pg.Answer{Lease: leases[0], StartedAt: w.Now, Step: sequencer.Dispatched(leases[0].Flight(0), busy, leases[0].Dispatcher.Dispatcher, 0.5)})

	other := w.Another(2)
	list, _, err := other.Events.LostEvents(w.Ctx, uuid.UUID{})
	w.Must(err)
	_, err = other.Events.AdvanceEvents(w.Ctx, "b", list)
	w.Must(err)
	now, err := w.S.Now(w.Ctx)
	w.Must(err)
	id, err := uuid.Parse(call.Event)
	w.Must(err)
	e, err := w.S.Events.Event(w.Ctx, w.By.Context, id)
	w.Must(err)
	if e.Status != leader.EventQueued || e.NotBefore == nil || e.NotBefore.Sub(now) < 9*time.Minute || e.NotBefore.Sub(now) > 11*time.Minute {
		t.Errorf("%s, next %v, at %s", e.Status, e.NotBefore, now)
	}
	// the transaction that called its tool is not redriven beside it
	tx, err := outbox.ParseID(e.Tool)
	w.Must(err)
	_, err = w.S.Redrive(w.Ctx, w.By, tx, pg.Redrive{})
	if f := fault.As(err); f == nil || f.Code != "wrong_state" || f.Extra["event"] != "/events/"+call.Event {
		t.Errorf("the call of an event that is Queued is redriven: %v", err)
	}
}
