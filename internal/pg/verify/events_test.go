package verify_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/verify"
	"github.com/postern-dev/postern/internal/sequencer"
)

// leading makes a database in which event a is Successful, the results of b and c are on their way through two
// channels, the tool of d is called, e is to be tried again, and f is Queued.
func leading(t *testing.T) *pgxpool.Pool {
	t.Helper()
	ctx := t.Context()
	s, by := opened(t)
	_, err := s.Events.PutSource(ctx, by, leader.Source{Name: "app", Kind: "push", Map: leader.SourceMap{FQN: "/tool"}, MaxRetries: 3}.WithDefaults(), 0)
	ok(t, err)
	d := outbox.DefaultDispatcher()
	d.Type, d.WorkerURL, d.Pool = leader.TypeResult, "http://127.0.0.1:1/", leader.PoolOfResults
	_, err = s.PutDispatcher(ctx, by, d, 0)
	ok(t, err)
	for _, c := range []string{"cap-1", "cap-2"} {
		_, err := s.PutSender(ctx, by, pg.Sender{Account: c, Pool: leader.PoolOfResults}, 0)
		ok(t, err)
	}
	n, err := s.Register(ctx, "n", "test", time.Hour)
	ok(t, err)
	ids := map[string]string{}
	push := func(names ...string) {
		t.Helper()
		for _, name := range names {
			out, err := s.Events.PushEvents(ctx, by, "app", []leader.Item{{Identity: name, JSON: json.RawMessage(`{"tool":"xyz.labs.add@1"}`), FQN: "xyz.labs.add@1"}}, nil)
			ok(t, err)
			ids[out[0].ID.String()] = name
		}
	}
	done := outbox.Answer{Result: outbox.Result{Done: json.RawMessage(`{"variant": "ok", "output": {}}`)}}
	// round calls or tells what is on its way, and settles what has an answer.
	round := func(answers map[string]outbox.Answer) {
		t.Helper()
		w, err := s.Events.LeaderWork(ctx)
		ok(t, err)
		_, err = s.Events.TakeEvents(ctx, w, n)
		ok(t, err)
		_, err = s.Events.SendResults(ctx, w, n)
		ok(t, err)
		leases, _, err := s.Claim(ctx, n, pg.Room{Total: 9, Slots: func(*pg.Dispatcher) int { return 9 }})
		ok(t, err)
		for _, l := range leases {
			a, known := answers[ids[strings.Split(l.Task.UID, ":")[1]]]
			if !known {
				continue
			}
			_, err = s.Settle(ctx, []*pg.Answer{{Lease: l, Result: a.Result, StartedAt: time.Now(),
				Step: sequencer.Dispatched(l.Flight(0), a, l.Dispatcher.Dispatcher, 0.5)}})
			ok(t, err)
		}
		list, _, err := s.Events.LostEvents(ctx, uuid.UUID{})
		ok(t, err)
		_, err = s.Events.AdvanceEvents(ctx, "n", list)
		ok(t, err)
	}
	push("a")
	round(map[string]outbox.Answer{"a": done})
	round(map[string]outbox.Answer{"a": done})
	push("b", "c", "d", "e")
	round(map[string]outbox.Answer{"b": done, "c": done, "e": {Class: outbox.ClassRetry, Code: "503", Message: "no"}})
	round(nil)
	push("f")
	var states string
	ok(t, s.Pool().QueryRow(ctx, `SELECT string_agg(concat_ws(' ', identity, status, nullif(outcome, ''), result_id <> '', not_before IS NOT NULL), ', ' ORDER BY identity) FROM postern.event`).Scan(&states))
	if states != "a Successful successful t f, b Active successful t f, c Active successful t f, d Active f f, e Queued f t, f Queued f f" {
		t.Fatal(states)
	}
	return s.Pool()
}

func TestEachInvariantOfEventsSeesWhatItIsFor(t *testing.T) {
	t.Parallel()
	pool := leading(t)
	if found, err := verify.Violations(t.Context(), pool); err != nil || len(found) > 0 {
		t.Fatalf("%v %v", found, err)
	}
	const result = `(o.queue_id, o.seq, o.day) = (e.result_queue, e.result_seq, e.result_day)`
	for _, c := range []struct{ invariant, sentence, plant string }{
		{"events are on their way", "the message between listener and engine is gone",
			`DELETE FROM postern.channel_message`},
		{"events are on their way", "a next try without a time",
			`UPDATE postern.event SET not_before = NULL WHERE identity = 'e'`},
		{"events are on their way", "Active, and nobody's",
			`UPDATE postern.event SET tool_id = '' WHERE identity = 'd'`},
		{"events are on their way", "the result of an event is nobody's",
			`UPDATE postern.event SET result_id = '' WHERE identity = 'b'`},
		{"events have a history", "a move is missing",
			`DELETE FROM postern.event_move WHERE n = 2 AND event_id = (SELECT event_id FROM postern.event WHERE identity = 'a')`},
		{"events have a history", "an event ended twice",
			`UPDATE postern.event_move SET status = 'Dead' WHERE n = 2 AND event_id = (SELECT event_id FROM postern.event WHERE identity = 'a')`},
		{"events have a history", "a state to which no move leads",
			`UPDATE postern.event SET was = 'Queued', status = 'Active' WHERE identity = 'f'`},
		{"events have one result", "nobody told the workflow",
			`UPDATE postern.event SET result_id = '' WHERE identity = 'a'`},
		{"events have one result", "the workflow did not take it",
			`UPDATE postern.outcome o SET state = 'FAILED' FROM postern.event e WHERE e.identity = 'a' AND ` + result},
		{"events have one result", "its result is still on its way",
			`DELETE FROM postern.outcome o USING postern.event e WHERE e.identity = 'a' AND ` + result},
		{"events have one result", "one result for two",
			`UPDATE postern.event e SET result_queue = x.result_queue, result_seq = x.result_seq, result_day = x.result_day
			FROM postern.event x WHERE e.identity = 'b' AND x.identity = 'c'`},
		{"systems post alone", "somebody told the result of an event",
			`UPDATE postern.task SET actor = 'eve' WHERE type = 'leader.result'`},
		{"systems post alone", "a client took the uid of a result",
			`UPDATE postern.task SET uid = 'event:00000000-0028-82d0-944b-c7c000000001:result', type = 'T'
			WHERE uid LIKE '%:tool:1'`},
		{"systems post alone", "the result of an event is another transaction",
			`UPDATE postern.task SET type = 'leader.other' WHERE type = 'leader.result'`},
		{"channels carry one result", "two results in one channel",
			`UPDATE postern.queue SET sender_id = (SELECT sender_id FROM postern.sender WHERE account = 'cap-1') WHERE sender_id IS NOT NULL`},
	} {
		t.Run(strings.ReplaceAll(c.invariant+" "+c.sentence, " ", "_"), func(t *testing.T) {
			tx, err := pool.Begin(t.Context()) // one database for all: each planted fault is rolled back
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(t.Context()) }()
			if tag, err := tx.Exec(t.Context(), c.plant); err != nil || tag.RowsAffected() == 0 {
				t.Fatal(tag, err)
			}
			for _, v := range verify.Invariants {
				if v.Name != c.invariant {
					continue
				}
				rows, _ := tx.Query(t.Context(), v.SQL)
				if found, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(found) == 0 {
					t.Errorf("nobody saw it: %v", err)
				}
			}
		})
	}
}
