package events_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/events"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/sequencer"
)

func (w *world) pushed(n int) (ids []uuid.UUID) {
	w.T.Helper()
	_, err := w.S.Events.PutSource(w.Ctx, w.By, leader.Source{Name: "app", Kind: "push", Map: leader.SourceMap{FQN: "/tool"}, Buffer: 2}.WithDefaults(), 0)
	w.Must(err)
	for i := range n {
		out, err := w.S.Events.PushEvents(w.Ctx, w.By, "app", []leader.Item{{Identity: string(rune('a' + i)), JSON: json.RawMessage(`{"tool":"xyz.labs.add@1"}`), FQN: "xyz.labs.add@1"}}, nil)
		w.Must(err)
		ids = append(ids, out[0].ID)
	}
	return ids
}

func TestReportsTellOfEventsAndChannels(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pushed(3)
	_, err := w.S.PutSender(w.Ctx, w.By, pg.Sender{Account: "cap-1", Pool: leader.PoolOfResults}, 0)
	w.Must(err)
	_, err = w.S.PutSender(w.Ctx, w.By, pg.Sender{Account: "cap-2", Pool: leader.PoolOfResults}, 0)
	w.Must(err)
	_, err = w.S.BlockSender(w.Ctx, w.By, "cap-2", time.Now().Add(time.Hour))
	w.Must(err)
	for sql, want := range map[string]string{
		`SELECT string_agg(concat_ws(' ', context, source, status, n, oldest IS NOT NULL), '; ' ORDER BY status) FROM report.events`:                                 "default app Active 0 f; default app Dead 0 f; default app Queued 3 t",
		`SELECT string_agg(concat_ws(' ', channel, kind, state, queued, active, blocked_until IS NOT NULL), '; ' ORDER BY channel COLLATE "C") FROM report.channels`: "cap-1 cap open 0 f; cap-2 cap blocked 0 t; leader:results integrity open 0 0 f; source:app integrity full 3 0 f",
	} {
		var got string
		w.Must(w.S.Pool().QueryRow(w.Ctx, sql).Scan(&got))
		if got != want {
			t.Errorf("%s\nis   %s\nwant %s", sql, got, want)
		}
	}
}

// A transaction that stands under the uid of an event's call is not its call: the event is told that its message was
// dropped, and goes to its workflow with that.
func TestAnEventWhoseMessageIsDroppedIsToldSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.pushed(1)[0]
	_, err := w.S.Ingest(w.Ctx, []*pg.Submission{{ContextID: w.By.Context, UID: "event:" + id.String() + ":tool:1", Hash: []byte("other"),
		Poster: outbox.ByLeader, Type: leader.TypeTool, Data: json.RawMessage(`{}`)}}, false)
	w.Must(err)
	node, err := w.S.Register(w.Ctx, "n", "v", time.Minute)
	w.Must(err)
	now, err := w.S.Now(w.Ctx)
	w.Must(err)
	for range 6 {
		work, err := w.S.Events.LeaderWork(w.Ctx)
		w.Must(err)
		_, err = w.S.Events.TakeEvents(w.Ctx, work, node)
		w.Must(err)
		now = now.Add(2 * time.Second)
		w.S.SetNow(&now)
		_, err = w.S.Channels.TendChannels(w.Ctx)
		w.Must(err)
	}
	list, _, err := w.S.Events.LostEvents(w.Ctx, uuid.UUID{})
	w.Must(err)
	out, err := w.S.Events.AdvanceEvents(w.Ctx, "n", list)
	w.Must(err)
	e, err := w.S.Events.Event(w.Ctx, w.By.Context, id)
	w.Must(err)
	if len(out.Moved) != 1 || e.Status != leader.EventActive || e.Outcome != leader.OutcomeFailed || e.Code != "dropped" {
		t.Errorf("%+v %+v", out, e)
	}
	if moves, err := w.S.Events.EventMoves(w.Ctx, w.By.Context, id); err != nil || len(moves) != 3 || moves[1].Event != leader.EventTaken || moves[2].Event != leader.EventDropped {
		t.Errorf("%v %+v", err, moves)
	}
}

// Two that take at once, and two that hear of an end at once: each event is taken once, and moves once.
func TestTwoWhoTakeAndTwoWhoHearMoveAnEventOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pushed(2)
	other := w.Other().S
	a, err := w.S.Register(w.Ctx, "a", "v", time.Minute)
	w.Must(err)
	b, err := w.S.Register(w.Ctx, "b", "v", time.Minute)
	w.Must(err)
	done := make(chan error, 2)
	for s, n := range map[*stores.Store]pg.Node{w.S: a, other: b} {
		go func() {
			work, err := s.Events.LeaderWork(w.Ctx)
			if err == nil {
				_, err = s.Events.TakeEvents(w.Ctx, work, n)
			}
			done <- err
		}()
	}
	w.Must(<-done)
	w.Must(<-done)
	var active, calls, messages int
	w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT (SELECT count(*) FROM postern.event WHERE status = 'Active'), (SELECT count(*) FROM postern.task WHERE type = 'leader.tool'), (SELECT count(*) FROM postern.channel_message)`).
		Scan(&active, &calls, &messages))
	if active != 2 || calls != 2 || messages != 0 {
		t.Errorf("%d active, %d calls, %d messages", active, calls, messages)
	}
	if n := len(w.Claim(a, pgworld.Everything())); n != 2 { // their calls hang
		t.Fatalf("%d calls go out", n)
	}
	w.Exec(`UPDATE postern.event SET updated_at = updated_at - interval '1 h'`)
	w.Exec(`UPDATE postern.queue SET entered_at = entered_at - interval '1 h'`)
	list, _, err := w.S.Events.LostEvents(w.Ctx, uuid.UUID{})
	w.Must(err)
	stale := make(chan int, 2)
	for _, s := range []*stores.Store{w.S, other} {
		go func() {
			out, err := s.Events.AdvanceEvents(w.Ctx, "n", list)
			stale <- out.Stale
			done <- err
		}()
	}
	w.Must(<-done)
	w.Must(<-done)
	if n := <-stale + <-stale; n != 2 {
		t.Errorf("%d events grew stale, want 2", n)
	}
	w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT count(*) FROM postern.channel_message`).Scan(&messages))
	if messages != 2 {
		t.Errorf("%d results are on their way, want 2", messages)
	}
}

// S0.5: how long an event was in each status is known when it leaves it, however often it was written meanwhile.
func TestTheStepsOfAnEventSayHowLongItStayed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.Node("n")
	w.Dispatcher(leader.TypeResult, nil)
	id := w.pushed(1)[0]
	w.Exec(`UPDATE postern.source SET max_retries = 1`)
	var got []string
	tell := func(steps []events.EventStep, err error) {
		t.Helper()
		w.Must(err)
		for _, s := range steps {
			got = append(got, fmt.Sprintf("%s: %s > %s after %s", s.On, s.From, s.To, s.Stayed))
		}
	}
	lead := func() {
		t.Helper()
		out, err := w.S.Events.AdvanceEvents(w.Ctx, "n", []uuid.UUID{id})
		tell(out.Steps, err)
		work, err := w.S.Events.LeaderWork(w.Ctx)
		w.Must(err)
		_, err = w.S.Events.SendResults(w.Ctx, work, n)
		w.Must(err)
		taken, err := w.S.Events.TakeEvents(w.Ctx, work, n)
		tell(taken.Steps, err)
	}
	for _, a := range []outbox.Answer{{Class: outbox.ClassRetry, Code: "http_503", Message: "warming up"}, toolSays, pgworld.Done()} {
		w.Later(3 * time.Second)
		_, err := w.S.Events.OfferDueEvents(w.Ctx)
		w.Must(err)
		lead()
		l := w.Claim(n, pgworld.Everything())[0]
		answer := w.Answer(l, a)
		answer.Step = sequencer.Dispatched(l.Flight(0), a, l.Dispatcher.Dispatcher, 0.5) // the core retries no call of a tool
		w.Settle(answer)
		w.Later(2 * time.Second)
		lead()
	}
	want := []string{"Taken: Queued > Active after 3s", "ToolDone: Active > Queued after 2s", "Taken: Queued > Active after 3s",
		"ToolDone: Active > Active after 2s", "ResultDone: Active > Successful after 7s"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Steps that are committed are told of, also where what follows them fails.
func TestTheStepsOfEventsThatCouldNotBeCalledAreTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.Node("n")
	id := w.pushed(1)[0]
	work, err := w.S.Events.LeaderWork(w.Ctx)
	w.Must(err)
	commits := 0
	w.S.HoldCommits(func(context.Context, uint32) error {
		if commits++; commits == 2 { // the first makes them Active
			return errors.New("no")
		}
		return nil
	})
	taken, err := w.S.Events.TakeEvents(w.Ctx, work, n)
	w.S.HoldCommits(nil)
	if err == nil || len(taken.Steps) != 1 || w.event(id).Status != leader.EventActive {
		t.Errorf("%d steps, %v, and the event is %s", len(taken.Steps), err, w.event(id).Status)
	}
}
