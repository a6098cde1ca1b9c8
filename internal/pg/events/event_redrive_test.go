package events_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/events"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// leads does for events what can be done without calling anybody.
func (w *world) leads(n pg.Node) {
	w.T.Helper()
	list, _, err := w.S.Events.LostEvents(w.Ctx, uuid.UUID{})
	w.Must(err)
	_, err = w.S.Events.AdvanceEvents(w.Ctx, "n", list)
	w.Must(err)
	work, err := w.S.Events.LeaderWork(w.Ctx)
	w.Must(err)
	_, err = w.S.Events.SendResults(w.Ctx, work, n)
	w.Must(err)
	_, err = w.S.Events.TakeEvents(w.Ctx, work, n)
	w.Must(err)
}

// answered settles the only transaction that is to go out.
func (w *world) answered(n pg.Node, a outbox.Answer) {
	w.T.Helper()
	l := w.Claim(n, pgworld.Everything())
	if len(l) != 1 {
		w.T.Fatalf("%d go out, want one", len(l))
	}
	w.Settle(w.Answer(l[0], a))
}

var (
	toolSays = outbox.Answer{Result: outbox.Result{Done: json.RawMessage(`{"variant": "ok", "output": {"ok": {}}}`)}}
	refused  = outbox.Answer{Class: outbox.ClassRejected, Code: "500", Message: "no"}
)

// reported brings an event to where its tool has answered, and the transaction is posted that tells its workflow.
func (w *world) reported(n pg.Node) uuid.UUID {
	w.T.Helper()
	w.Dispatcher(leader.TypeResult, nil)
	id := w.pushed(1)[0]
	w.leads(n)
	w.answered(n, toolSays)
	w.leads(n)
	return id
}

// untold is reported, to a workflow that does not take it: the event is Dead.
func (w *world) untold(n pg.Node) uuid.UUID {
	w.T.Helper()
	id := w.reported(n)
	w.answered(n, refused)
	w.leads(n)
	if e := w.event(id); e.Status != leader.EventDead || e.Code != leader.CodeSubmission {
		w.T.Fatalf("%+v", e)
	}
	return id
}

func (w *world) event(id uuid.UUID) *events.Event {
	w.T.Helper()
	e, err := w.S.Events.Event(w.Ctx, w.ID, id)
	w.Must(err)
	return e
}

func (w *world) resultOf(id uuid.UUID) outbox.ID {
	w.T.Helper()
	tx, err := outbox.ParseID(w.event(id).Result)
	w.Must(err)
	return tx
}

// redriveResult tells a workflow once more, with other data if there are.
func (w *world) redriveResult(s *stores.Store, tx outbox.ID, data string) (outbox.ID, error) {
	out, err := s.Redrive(w.Ctx, w.By, tx, pg.Redrive{Data: json.RawMessage(data)})
	return out.ID, err
}

// S1.14: a workflow is never told two things of one event, by the first transaction that tells it or by one that tells
// it once more.
func TestAResultIsRedrivenAsItIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.Node("n")
	id := w.untold(n)
	first := w.resultOf(id)
	for tx := first; ; {
		_, err := w.redriveResult(w.S, tx, `{"other": true}`)
		if f := fault.As(err); f == nil || f.Kind != fault.Invalid || len(f.Fields) != 1 || f.Fields[0].Pointer != "/data" || !strings.Contains(f.Detail, "never told two things") {
			t.Fatalf("%v: %v", tx, err)
		}
		next, err := w.redriveResult(w.S, tx, "")
		w.Must(err)
		was, err := w.S.Transaction(w.Ctx, w.ID, first)
		w.Must(err)
		is, err := w.S.Transaction(w.Ctx, w.ID, next)
		w.Must(err)
		if string(is.Data) != string(was.Data) {
			t.Errorf("%s, then %s", was.Data, is.Data)
		}
		if _, err := w.S.Events.RedriveEvent(w.Ctx, w.By, id); fault.CodeOf(err) != "already_redriven" || fault.As(err).Extra["redriven_by"] != next.String() {
			t.Errorf("beside its result: %v", err)
		}
		if _, err := w.redriveResult(w.S, first, ""); fault.CodeOf(err) != "already_redriven" {
			t.Errorf("a second time: %v", err)
		}
		w.answered(n, refused)
		if tx != first {
			break
		}
		tx = next
	}
	if _, err := w.S.Events.RedriveEvent(w.Ctx, w.By, id); err != nil {
		t.Errorf("nobody tells its result any more: %v", err)
	}
}

// A result that is told once more can be moved to another queue, and goes out again as it is if that one fails, too.
func TestAResultThatWasMovedIsRedrivenAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.Node("n")
	id := w.untold(n)
	for _, queue := range []string{"results", "others"} {
		next, err := w.redriveResult(w.S, w.resultOf(id), "")
		w.Must(err)
		for _, to := range []string{queue, queue + "2"} {
			r, err := w.S.MoveTo(w.Ctx, w.By, next, to, nil)
			w.Must(err)
			if next = *r.Moved; w.resultOf(id) != next {
				t.Errorf("moved to %s: the result is %v, want %v", to, w.resultOf(id), next)
			}
		}
		if _, err := w.S.Events.RedriveEvent(w.Ctx, w.By, id); fault.CodeOf(err) != "already_redriven" {
			t.Errorf("beside its result: %v", err)
		}
		w.answered(n, refused)
	}
	if _, err := w.S.Events.RedriveEvent(w.Ctx, w.By, id); err != nil {
		t.Errorf("nobody tells its result any more: %v", err)
	}
}

// A workflow that was told the result of an event once more is told no other result after retention has dropped the
// transactions that told it. An event whose result was never told can be redriven then.
func TestATransactionThatToldAResultIsRemembered(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		after  time.Duration // it is told once more; below zero: never
		code   string
		refuse string
	}{
		"told":         {20 * day, "already_redriven", "which is DONE"},
		"told at once": {0, "already_redriven", "dropped by retention"},
		"not redriven": {-1, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			n := w.Node("n")
			id := w.untold(n)
			if c.after >= 0 {
				w.Ahead(c.after)
				next, err := w.redriveResult(w.S, w.resultOf(id), "")
				w.Must(err)
				w.answered(w.Node("m"), toolSays)
				if w.resultOf(id) != next {
					t.Errorf("its result is %v, redriven as %v", w.resultOf(id), next)
				}
			}
			w.Ahead(32*day - max(c.after, 0))
			w.Retain()
			_, err := w.S.Events.RedriveEvent(w.Ctx, w.By, id)
			if fault.CodeOf(err) != c.code || err != nil && !strings.Contains(err.Error(), c.refuse) {
				t.Errorf("redriven: %v", err)
			}
		})
	}
}

// Of two that redrive an event and its result, or either of them twice, at the same moment, one does.
func TestTwoSessionsRedriveOneEvent(t *testing.T) {
	t.Parallel()
	event := func(w *world, s *stores.Store, id uuid.UUID) error {
		_, err := s.Events.RedriveEvent(w.Ctx, w.By, id)
		return err
	}
	result := func(w *world, s *stores.Store, id uuid.UUID) error {
		_, err := w.redriveResult(s, w.resultOf(id), "")
		return err
	}
	into := func(w *world, s *stores.Store, id uuid.UUID) error {
		queue := "results"
		_, err := s.Redrive(w.Ctx, w.By, w.resultOf(id), pg.Redrive{Queue: &queue})
		return err
	}
	for _, p := range []struct {
		name          string
		first, second func(*world, *stores.Store, uuid.UUID) error
		said          string
	}{
		{"the result while the event is redriven", event, result, "wrong_state"},
		{"the event while its result is redriven", result, event, "already_redriven"},
		{"two the event", event, event, "already_redriven"},
		{"two the result", result, result, "already_redriven"},
		{"two the result, one into a queue", result, into, "already_redriven"},
	} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			id := w.untold(w.Node("n"))
			w.Post("results", leader.TypeResult, "other") // the queue is there: nothing is committed before
			other := w.Another(2)
			said, waited := w.Beside(func() error { return p.first(w, w.S, id) }, func() string { return fault.CodeOf(p.second(w, other, id)) })
			if said != p.said || !waited {
				t.Errorf("the second says %q, want %q; waited: %v", said, p.said, waited)
			}
			var events, results int
			w.Scan(`SELECT (SELECT count(*) FROM postern.event), (SELECT count(*) FROM postern.task WHERE type = 'leader.result' AND uid IS DISTINCT FROM 'other')`, &events, &results)
			if events+results != 3 {
				t.Errorf("%d events, %d results: one of both was to be redriven", events, results)
			}
		})
	}
}

// A transaction that an event waits for can be moved to another queue: the event hears of its end there.
func TestAnEventHearsOfWhatWasMoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.Node("n")
	w.Dispatcher(leader.TypeResult, nil)
	id := w.pushed(1)[0]
	w.leads(n)
	now := w.MoveTo(fmt.Sprintf("event:%s:tool:1", id), "tools", nil)
	w.leads(n)
	if e := w.event(id); e.Status != leader.EventActive || e.Outcome != "" || e.Tool != now.String() {
		t.Fatalf("%+v", e)
	}
	w.answered(n, toolSays)
	w.leads(n)
	uid := fmt.Sprintf("event:%s:result", id)
	// Moved before the event knows it, as where its sender died between both commits.
	w.Exec(`UPDATE postern.event SET result_queue = NULL, result_seq = NULL, result_day = NULL, result_id = ''`)
	w.MoveTo(uid, "results", nil)
	now = w.MoveTo(uid, "others", nil)
	w.Later(time.Minute)
	w.leads(n)
	if e := w.event(id); e.Status != leader.EventActive || e.Outcome != leader.OutcomeSuccessful || e.Result != now.String() {
		t.Fatalf("%+v", e)
	}
	w.answered(n, pgworld.Done())
	w.leads(n)
	if e := w.event(id); e.Status != leader.EventSuccessful {
		t.Errorf("%+v", e)
	}
}

// A move of a transaction of an event waits for a session that brings the event on. A session that brings events on
// skips an event whose transaction is being moved.
func TestTwoSessionsMoveAndBringOnAnEvent(t *testing.T) {
	t.Parallel()
	for _, moveFirst := range []bool{true, false} {
		t.Run(fmt.Sprint("the move first: ", moveFirst), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			n := w.Node("n")
			w.Dispatcher(leader.TypeResult, nil)
			id := w.pushed(1)[0]
			w.leads(n)
			w.Post("tools", leader.TypeResult, "other") // the queue is there
			uid := fmt.Sprintf("event:%s:tool:1", id)
			other, was := w.Another(2), w.event(id).Tool
			// its process died before the event knew the call, and the message was dropped
			w.Exec(`UPDATE postern.event SET tool_queue = NULL, tool_seq = NULL, tool_day = NULL, tool_id = ''`)
			w.Exec(`INSERT INTO postern.event_drop (event_id, reason) SELECT event_id, 'dropped' FROM postern.event`)
			move := func(s *stores.Store) error { _, err := s.MoveTo(w.Ctx, w.By, w.UID(uid), "tools", nil); return err }
			advance := func(s *stores.Store) error {
				out, err := s.Events.AdvanceEvents(w.Ctx, "n", []uuid.UUID{id})
				if err == nil && len(out.Moved) != 1 {
					err = fmt.Errorf("moved %d", len(out.Moved))
				}
				return err
			}
			first, second := move, advance
			if !moveFirst {
				first, second = advance, move
			}
			said, waited := w.Beside(func() error { return first(w.S) }, func() string { return fmt.Sprint(second(other)) })
			if want := map[bool]string{true: "moved 0", false: "<nil>"}[moveFirst]; said != want || waited == moveFirst {
				t.Errorf("the second says %s, want %s; waited: %v", said, want, waited)
			}
			if e := w.event(id); e.Tool == was || e.Tool != w.UID(uid).String() || e.Outcome == leader.OutcomeFailed == moveFirst {
				t.Errorf("%+v", e)
			}
		})
	}
}
