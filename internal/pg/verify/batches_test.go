package verify_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/batches"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/verify"
	"github.com/postern-dev/postern/internal/processor"
	"github.com/postern-dev/postern/internal/sequencer"
)

// processing makes a database in which batch 1, atomic, is Executed; 2 PartiallyExecuted(1); 3 waits for a callback; 4
// is being executed; 5 is Queued. 2 and 5 were sent by ann through an authorization that limits her calls.
func processing(t *testing.T) *pgxpool.Pool {
	t.Helper()
	ctx := t.Context()
	s, by := opened(t)
	d := outbox.DefaultDispatcher()
	d.Type, d.WorkerURL, d.Capabilities = "ADD", "http://127.0.0.1:1/", []string{"atomic"}
	_, err := s.PutDispatcher(ctx, by, d, 0)
	ok(t, err)
	_, err = s.Batches.PutProcessor(ctx, by, batches.Processor{Name: "main"}, 0)
	ok(t, err)
	n, err := s.Register(ctx, "n", "test", time.Hour)
	ok(t, err)
	f := processor.Function{Domain: "main", ContractAddress: "ADD", MessageDetails: processor.MessageDetails{Message: processor.MessageShape{Name: "add"}}}
	confirmed := f
	confirmed.Callback = &processor.Confirmation{ContractAddress: "bob", CallbackMessage: json.RawMessage(`1`)}
	m := []processor.Message{{Msg: json.RawMessage(`{"add":{}}`)}, {Msg: json.RawMessage(`{"add":{}}`)}}
	two := processor.Actions{NonAtomic: &processor.Subroutine{Functions: []processor.Function{f, f}}}
	a := processor.DefaultAuthorization()
	a.Label, a.Mode.Limits, a.MaxConcurrent, a.Actions = "pay", map[string]int64{"ann": 5}, 5, two
	_, err = s.Batches.PutAuthorization(ctx, by, a, 0)
	ok(t, err)
	enqueue := func(a processor.Actions, prio processor.Priority) {
		t.Helper()
		_, err := s.Batches.Enqueue(ctx, by, "main", batches.NewBatch{Actions: a, Messages: m[:len(a.Functions())], Priority: prio})
		ok(t, err)
	}
	tick := func(answer outbox.Answer) {
		t.Helper()
		_, err := s.Batches.Tick(ctx, by, "main")
		ok(t, err)
		leases, _, err := s.Claim(ctx, n, pg.Room{Total: 1, Slots: func(*pg.Dispatcher) int { return 1 }})
		ok(t, err)
		_, err = s.Settle(ctx, []*pg.Answer{{Lease: leases[0], Result: answer.Result, StartedAt: time.Now(),
			Gate: sequencer.MoveOpen, Step: sequencer.Dispatched(leases[0].Flight(0), answer, leases[0].Dispatcher.Dispatcher, 0.5)}})
		ok(t, err)
		ok(t, s.Batches.AdvanceProcessor(ctx, by.Context, "main"))
	}
	done := outbox.Answer{Result: outbox.Result{Done: json.RawMessage(`{"ok":true}`)}}
	enqueue(processor.Actions{Atomic: two.NonAtomic}, processor.High)
	tick(done)
	_, err = s.Batches.Send(ctx, by, "pay", m, 0, db.Once{})
	ok(t, err)
	tick(done)
	tick(outbox.Answer{Class: outbox.ClassRetry, Code: "500", Message: "no"})
	enqueue(processor.Actions{NonAtomic: &processor.Subroutine{Functions: []processor.Function{confirmed}}}, processor.High)
	tick(done)
	enqueue(processor.Actions{Atomic: two.NonAtomic}, processor.High)
	_, err = s.Batches.Tick(ctx, by, "main")
	ok(t, err)
	_, err = s.Batches.Send(ctx, by, "pay", m, 0, db.Once{})
	ok(t, err)
	return s.Pool()
}

func TestWhatAProcessorMakesIsClean(t *testing.T) {
	pool := processing(t)
	var states string
	if err := pool.QueryRow(t.Context(), `SELECT string_agg(coalesce(result, state), ' ' ORDER BY batch_id) FROM postern.batch`).Scan(&states); err != nil ||
		states != "executed partially_executed Waiting_Callback Executing Queued" {
		t.Fatal(states, err)
	}
	found, err := verify.Violations(t.Context(), pool)
	if err != nil || len(found) > 0 {
		t.Errorf("%v %v", found, err)
	}
}

func TestEachInvariantOfBatchesSeesWhatItIsFor(t *testing.T) {
	pool := processing(t)
	for _, c := range []struct{ invariant, sentence, plant string }{
		{"batches execute in full", "an atomic batch that was executed in part",
			`UPDATE postern.batch SET actions = jsonb_build_object('atomic', actions->'non_atomic') WHERE batch_id = 2`},
		{"batches execute in full", "an action that was skipped",
			`UPDATE postern.batch_action SET position = 1 WHERE batch_id = 2 AND run = 1`},
		{"batches execute in full", "a result without what it says",
			`UPDATE postern.batch_action SET ok = false WHERE batch_id = 1`},
		{"batches execute in full", "a rejection after something was executed",
			`UPDATE postern.batch SET result = 'rejected', result_n = 0, was = 'Executing' WHERE batch_id = 2`},
		{"batches execute in full", "an execution that was forgotten",
			`DELETE FROM postern.batch_action WHERE batch_id = 4`},
		{"batches execute in full", "an end while something is executed",
			`INSERT INTO postern.batch_action (batch_id, run, position, started_at) VALUES (2, 3, 1, now()); UPDATE postern.batch SET run = 3 WHERE batch_id = 2`},
		{"batches execute in full", "a success that the core does not know",
			`UPDATE postern.outcome o SET state = 'FAILED' FROM postern.idempotency i
			WHERE i.key = ':processor:1:1' AND (o.queue_id, o.seq) = (i.queue_id, i.seq)`},
		{"batches stand in line", "a batch that fell out of its line",
			`DELETE FROM postern.batch_place; UPDATE postern.batch_line SET length = 0`},
		{"batches stand in line", "a batch that stands while it is executed",
			`UPDATE postern.batch_place SET batch_id = 4`},
		{"batches stand in line", "a line that miscounts", `UPDATE postern.batch_line SET length = length + 1`},
		{"batches stand in line", "bounds that do not enclose",
			`UPDATE postern.batch_line SET lowest = lowest + 1000000000, highest = highest + 1000000000`},
		{"batches await callbacks", "nobody can confirm", `DELETE FROM postern.batch_callback`},
		{"batches await callbacks", "a callback is left",
			`INSERT INTO postern.batch_callback (batch_id, address, payload) VALUES (5, 'bob', '1')`},
		{"systems post alone", "a client's transaction stands in the queue of an execution",
			`UPDATE postern.task SET uid = 'mine' WHERE uid = ':processor:4:1'`},
		{"systems post alone", "an execution that no tick began",
			`UPDATE postern.task SET uid = ':processor:4:2' WHERE uid = ':processor:4:1'`},
		{"authorizations count", "a place that was not given back",
			`UPDATE postern.batch_authorization SET running = 2`},
		{"authorizations count", "a call that was spent and not counted", `UPDATE postern.batch_call SET spent = 1`},
	} {
		t.Run(strings.ReplaceAll(c.invariant+" "+c.sentence, " ", "_"), func(t *testing.T) { seen(t, pool, c.plant, c.invariant) })
	}
}
