package pg_test

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
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/sequencer"
)

// calling makes a leader with room for so many calls, and so many events of each tool.
func (w *world) calling(slots, events int, tools ...string) {
	w.t.Helper()
	_, err := w.s.PutSource(w.ctx, w.by, leader.Source{Name: "app", Kind: "push", Map: leader.SourceMap{FQN: "/tool"}, MaxRetries: 3}.WithDefaults(), 0)
	w.must(err)
	d := pg.ToolDispatcher()
	d.Slots = slots
	_, err = w.s.PutDispatcher(w.ctx, w.by, d, 0)
	w.must(err)
	var items []leader.Item
	for i := range events {
		for _, fqn := range tools {
			items = append(items, leader.Item{Identity: fmt.Sprint(fqn, i), JSON: json.RawMessage(fmt.Sprintf(`{"tool": %q}`, fqn)), FQN: fqn})
		}
	}
	_, err = w.s.PushEvents(w.ctx, w.by, "app", items, nil)
	w.must(err)
}

func (w *world) takes(s *stores.Store, n pg.Node) int {
	w.t.Helper()
	work, err := s.LeaderWork(w.ctx)
	w.must(err)
	taken, err := s.TakeEvents(w.ctx, work, n)
	w.must(err)
	return taken.Messages
}

func (w *world) active() (byTool string) {
	w.t.Helper()
	w.must(w.s.Pool().QueryRow(w.ctx, `SELECT coalesce(string_agg(fqn || ' ' || n, ', ' ORDER BY fqn), '') FROM (SELECT fqn, count(*) AS n FROM postern.event WHERE status = 'Active' GROUP BY 1) x`).Scan(&byTool))
	return byTool
}

// Two nodes that take at one moment fill the room once: the second counts behind the lock of the first.
func TestTwoWhoTakeFillTheRoomOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.calling(6, 10, "xyz.labs.add@1", "xyz.labs.sub@1")
	one, two := w.other(), w.other()
	a, err := w.s.Register(w.ctx, "a", "v", time.Minute)
	w.must(err)
	b, err := w.s.Register(w.ctx, "b", "v", time.Minute)
	w.must(err)
	holds, err := w.s.Pool().Begin(w.ctx)
	w.must(err)
	_, err = holds.Exec(w.ctx, `SELECT FROM postern.dispatcher WHERE type = 'leader.tool' FOR UPDATE`)
	w.must(err)
	done := make(chan error, 2)
	for o, n := range map[*other]pg.Node{one: a, two: b} {
		go func() {
			work, err := o.s.LeaderWork(w.ctx)
			if err == nil {
				_, err = o.s.TakeEvents(w.ctx, work, n)
			}
			done <- err
		}()
	}
	w.awaitBlocked(one.pid)
	w.awaitBlocked(two.pid)
	w.must(holds.Commit(w.ctx))
	w.must(<-done)
	w.must(<-done)
	if got := w.active(); got != "xyz.labs.add@1 3, xyz.labs.sub@1 3" {
		t.Errorf("two who take with room for 6, and for 3 of one tool: %s", got)
	}
	if n := w.takes(w.s, a); n != 0 {
		t.Errorf("%d more were taken", n)
	}
	var calls int
	w.must(w.s.Pool().QueryRow(w.ctx, `SELECT count(*) FROM postern.task WHERE type = 'leader.tool'`).Scan(&calls))
	if calls != 6 {
		t.Errorf("%d transactions call tools", calls)
	}
}

// Who dies between making events Active and posting their calls leaves them to the next one, also where they fill the
// room themselves.
func TestWhatSomebodyTookAndDidNotPostIsPostedByTheNext(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.calling(2, 3, "xyz.labs.add@1")
	a, err := w.s.Register(w.ctx, "a", "v", time.Minute)
	w.must(err)
	if n := w.takes(w.s, a); n != 1 {
		t.Fatalf("%d were taken", n)
	}
	// as if it had died there: the message waits again, and nothing was posted
	for _, sql := range []string{`DELETE FROM postern.channel_message_end`, `TRUNCATE postern.task, postern.queue, postern.ready, postern.idempotency`,
		`UPDATE postern.event SET tool_queue = NULL, tool_seq = NULL, tool_day = NULL, tool_id = '' WHERE status = 'Active'`,
		`INSERT INTO postern.channel_message (channel_id, message_id, payload, state, fence, draw, created_at, updated_at)
			SELECT s.channel_id, e.event_id::text, '{"tool": "xyz.labs.add@1"}', 'Queued', 9, 1, now(), now() FROM postern.event e JOIN postern.source s USING (source_id) WHERE e.status = 'Active'`} {
		_, err := w.s.Pool().Exec(w.ctx, sql)
		w.must(err)
	}
	if n, got := w.takes(w.another(2), a), w.active(); n != 1 || got != "xyz.labs.add@1 1" {
		t.Errorf("%d were taken: %s", n, got)
	}
	var named, moves, messages int
	w.must(w.s.Pool().QueryRow(w.ctx, `SELECT (SELECT count(*) FROM postern.event WHERE status = 'Active' AND tool_id <> ''),
		(SELECT count(*) FROM postern.event_move WHERE event = 'Taken'), (SELECT count(*) FROM postern.channel_message)`).Scan(&named, &moves, &messages))
	if named != 1 || moves != 1 || messages != 2 {
		t.Errorf("%d events name their call after %d moves, %d messages are left", named, moves, messages)
	}
}

// What a tool says of when it is to be called again is kept with its event: a node that never spoke to it waits as
// long. What belongs to another try changes nothing.
func TestAnotherNodeLeavesAToolAloneForAsLongAsItSaid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.calling(2, 1, "xyz.labs.add@1")
	a, err := w.s.Register(w.ctx, "a", "v", time.Minute)
	w.must(err)
	w.takes(w.s, a)
	leases := w.claim(a, pg.Room{Total: 1, Slots: func(*pg.Dispatcher) int { return 1 }, Takes: func(string) bool { return true }})
	var call pg.ToolCall
	w.must(json.Unmarshal(leases[0].Task.Data, &call))
	w.must(w.s.LeaveToolAlone(w.ctx, w.by.Context, call, 10*time.Minute))
	call.Try++
	w.must(w.s.LeaveToolAlone(w.ctx, w.by.Context, call, time.Hour))
	busy := outbox.Answer{Class: outbox.ClassRetry, Code: "http_429", Message: "not so fast"}
	w.settle(&pg.Answer{Lease: leases[0], Reachable: true, StartedAt: w.now, Step: sequencer.Dispatched(leases[0].Flight(0), busy, leases[0].Dispatcher.Dispatcher, 0.5)})

	other := w.another(2)
	list, _, err := other.LostEvents(w.ctx, uuid.UUID{})
	w.must(err)
	_, err = other.AdvanceEvents(w.ctx, "b", list)
	w.must(err)
	now, err := w.s.Now(w.ctx)
	w.must(err)
	id, err := uuid.Parse(call.Event)
	w.must(err)
	e, err := w.s.Event(w.ctx, w.by.Context, id)
	w.must(err)
	if e.Status != leader.EventQueued || e.NotBefore == nil || e.NotBefore.Sub(now) < 9*time.Minute || e.NotBefore.Sub(now) > 11*time.Minute {
		t.Errorf("%s, next %v, at %s", e.Status, e.NotBefore, now)
	}
	// what called its tool is not redriven beside it
	tx, err := outbox.ParseID(e.Tool)
	w.must(err)
	_, err = w.s.Redrive(w.ctx, w.by, tx, pg.Redrive{})
	if f := fault.As(err); f == nil || f.Code != "wrong_state" || f.Extra["event"] != "/events/"+call.Event {
		t.Errorf("the call of an event that is Queued is redriven: %v", err)
	}
}
