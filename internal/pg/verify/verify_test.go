package verify_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/pg/verify"
)

func TestWhatTheStoreMakesIsClean(t *testing.T) {
	found, err := verify.Violations(t.Context(), busy(t))
	if err != nil || len(found) > 0 {
		t.Errorf("%v %v", found, err)
	}
}

// Each planted violation is one that no constraint refuses; it must be found by the invariant that it is of.
func TestEachInvariantSeesWhatItIsFor(t *testing.T) {
	const flying = `(SELECT queue_id FROM postern.queue_name WHERE name = 'flying')`
	const waiting = `(SELECT queue_id FROM postern.queue_name WHERE name = 'waiting')`
	const ended = `(SELECT queue_id FROM postern.queue_name WHERE name = 'ended')`
	const lone = `(SELECT queue_id FROM postern.queue_name WHERE name = 'lone')`
	pool := busy(t)
	for _, c := range []struct{ invariant, sentence, plant string }{
		{"one in flight per queue", "an outcome beyond the one in flight makes two of them",
			`INSERT INTO postern.outcome (queue_id, seq, day, context_id, was, state)
			SELECT queue_id, seq, day, context_id, 'DISPATCHING', 'DONE' FROM postern.task WHERE queue_id = ` + flying + ` AND seq = 3 ON CONFLICT DO NOTHING;
			UPDATE postern.queue SET marks = 0 WHERE queue_id = ` + flying},
		{"one queue per sender", "two queues name one sender",
			`UPDATE postern.queue SET sender_id = (SELECT sender_id FROM postern.sender WHERE account = 'a1') WHERE cur_seq IS NOT NULL`},
		{"one sender per token", "two senders were called for one token",
			`INSERT INTO postern.attempt (queue_id, seq, day, attempt, fence, step, sender_id)
			SELECT queue_id, seq, day, attempt, fence - 1, 'dispatch', (SELECT sender_id FROM postern.sender WHERE account = 'a3')
			FROM postern.attempt WHERE queue_id = ` + waiting},
		{"one sender per token", "another sender ended what one was called for",
			`INSERT INTO postern.attempt (queue_id, seq, day, attempt, fence, step, sender_id)
			SELECT queue_id, seq, day, attempt, fence, 'dispatch', (SELECT sender_id FROM postern.sender WHERE account = 'a3')
			FROM postern.outcome WHERE queue_id = ` + ended + ` AND seq = 1`},
		{"one sender per token", "what one sender was called for waits for any",
			`INSERT INTO postern.attempt (queue_id, seq, day, attempt, fence, step, sender_id)
			SELECT queue_id, head_seq, head_day, 1, fence, 'dispatch', (SELECT sender_id FROM postern.sender WHERE account = 'a3')
			FROM postern.queue WHERE queue_id = ` + lone},
		{"exclusive lanes are held", "an exclusive lane was let go in flight", `UPDATE postern.lane SET holder = NULL`},
		{"exclusive lanes are held", "an exclusive lane is held by a queue that is gone",
			`UPDATE postern.lane SET holder = 12345 WHERE kind = 'exclusive'`},
		{"one transaction per key", "a key names nothing",
			`INSERT INTO postern.idempotency (context_id, key, queue_id, seq, day, body_hash) VALUES (1, 'ghost', 12345, 1, '2026-01-01', '')`},
		{"one transaction per key", "two transactions bear one key",
			`UPDATE postern.task SET uid = 'same' WHERE queue_id = ` + ended + ` AND seq > 1`},
		{"positions are dense", "a position is missing",
			`DELETE FROM postern.task WHERE queue_id = ` + ended + ` AND seq = 2`},
		{"positions are dense", "the tail is behind",
			`UPDATE postern.queue SET tail_seq = 2, head_seq = 3 WHERE queue_id = ` + ended},
		{"below head all has ended", "an outcome is missing",
			`DELETE FROM postern.outcome WHERE queue_id = ` + ended + ` AND seq = 2`},
		{"above head little has ended", "an outcome at the head of a queue without an owner",
			`INSERT INTO postern.outcome (queue_id, seq, day, context_id, was, state)
			SELECT queue_id, seq, day, context_id, 'DISPATCHING', 'DONE' FROM postern.task WHERE queue_id = ` + lone},
		{"above head little has ended", "a mark that is not counted",
			`INSERT INTO postern.mark (queue_id, seq, kind) VALUES (` + lone + `, 1, 'cancelling')`},
		{"fences rise", "a fence fell",
			`UPDATE postern.outcome SET fence = 1 WHERE queue_id = ` + ended + ` AND seq = 3`},
		{"attempts have rows", "an attempt is missing",
			`UPDATE postern.outcome SET attempt = 2 WHERE queue_id = ` + ended + ` AND seq = 2`},
		{"attempts have rows", "an attempt is younger than the outcome",
			`INSERT INTO postern.attempt (queue_id, seq, day, attempt, fence, step)
			SELECT queue_id, seq, day, 2, fence, 'dispatch' FROM postern.outcome WHERE queue_id = ` + ended + ` AND seq = 1`},
		{"bindings agree", "a sender that was not given back",
			`UPDATE postern.sender SET queue_id = ` + ended + ` WHERE account = 'a1'`},
		{"bindings agree", "a queue whose sender does not know",
			`UPDATE postern.sender SET queue_id = NULL WHERE queue_id IS NOT NULL`},
		{"work is in hand", "a ready row was lost", `DELETE FROM postern.ready WHERE queue_id = ` + lone},
		{"work is in hand", "a timer was lost", `DELETE FROM postern.timer WHERE queue_id = ` + waiting},
		{"work is in hand", "a ready row under an old key",
			`UPDATE postern.ready SET since = since - interval '1 s' WHERE queue_id = ` + lone},
		{"work is in hand", "a ready row where no claim looks for its queue",
			`UPDATE postern.ready SET era = 1000 WHERE queue_id = ` + lone},
		{"work is in hand", "a ready row of a queue that is owned",
			`INSERT INTO postern.ready (lane, prio, since, queue_id) SELECT lane, prio, entered_at, queue_id FROM postern.queue WHERE queue_id = ` + flying},
		{"states pass in time", "a call that its node does not end",
			`UPDATE postern.queue SET entered_at = now() - interval '14 min' WHERE queue_id = ` + flying},
		{"states pass in time", "a timer that no process looks at",
			`UPDATE postern.timer SET due_at = now() - interval '4 min' WHERE queue_id = ` + waiting},
		{"work is in hand", "a paused queue that stands in its lane",
			`UPDATE postern.queue SET paused = true WHERE queue_id = ` + lone},
		{"work is in hand", "an owner was taken and nothing given",
			`UPDATE postern.queue SET node_id = NULL, node_epoch = NULL WHERE queue_id = ` + flying},
		{"work is in hand", "one in DISPATCHING both stands and waits",
			`UPDATE postern.queue SET node_id = NULL, node_epoch = NULL WHERE queue_id = ` + flying + `;
			INSERT INTO postern.timer (queue_id, due_at) VALUES (` + flying + `, now());
			INSERT INTO postern.ready (lane, prio, since, queue_id) SELECT (SELECT lane_id FROM postern.lane WHERE kind = 'resume'), prio, entered_at, queue_id
			FROM postern.queue WHERE queue_id = ` + flying},
		{"heads have bodies", "a head without a body", `DELETE FROM postern.task WHERE queue_id = ` + lone},
		{"days rise", "the day fell",
			`UPDATE postern.task SET day = day - 1 WHERE queue_id = ` + ended + ` AND seq = 3`},
		{"dependencies are done", "one is DONE before what it waits for",
			`INSERT INTO postern.dependency (queue_id, seq, day, on_queue, on_seq, on_day, on_salt)
			SELECT t.queue_id, t.seq, t.day, o.queue_id, o.seq, o.day, 0
			FROM postern.task t, postern.task o WHERE t.uid = 'e1' AND o.uid = 'l1'`},
		{"dependencies are done", "one waits for what was cancelled",
			`INSERT INTO postern.dependency (queue_id, seq, day, on_queue, on_seq, on_day, on_salt)
			SELECT t.queue_id, t.seq, t.day, o.queue_id, o.seq, o.day, 0
			FROM postern.task t, postern.task o WHERE t.uid = 'l1' AND o.uid = 'f3'`},
		{"the first goes first", "what was placed ahead waits behind another",
			`INSERT INTO postern.mark (queue_id, seq, kind, rank) VALUES (` + flying + `, 4, 'placed', 0.5)`},
		{"held is held", "what is held for an operator has an owner",
			`INSERT INTO postern.mark (queue_id, seq, kind) VALUES (` + flying + `, 2, 'unknown')`},
		{"days rise", "a day beyond that of the tail",
			`UPDATE postern.queue SET tail_day = tail_day - 1, head_day = head_day - 1 WHERE queue_id = ` + ended},
	} {
		t.Run(strings.ReplaceAll(c.invariant+" "+c.sentence, " ", "_"), func(t *testing.T) { seen(t, pool, c.plant, c.invariant) })
	}
}

// Each invariant has rows that break it, in a test of its package; but for one that the schema itself refuses to have
// broken (schema_test.go).
func TestEachInvariantHasAViolationThatIsPlanted(t *testing.T) {
	var tests strings.Builder
	files, err := filepath.Glob("../*/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(text)
	}
	for _, v := range verify.Invariants {
		if v.Name != "one row per queue" && !strings.Contains(tests.String(), `"`+v.Name+`"`) {
			t.Errorf("no test plants a violation of %q", v.Name)
		}
	}
}

// seen fails the test unless the invariant sees what was planted, in a transaction that leaves the pool as it was.
func seen(t *testing.T, pool *pgxpool.Pool, plant, invariant string) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), plant); err != nil {
		t.Fatalf("%s: %v", plant, err)
	}
	found, err := verify.Violations(t.Context(), tx)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if strings.HasPrefix(f, invariant+" (") {
			return
		}
	}
	t.Errorf("nobody saw it: %v", found)
}
