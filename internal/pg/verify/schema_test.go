package verify_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// The two sentences of S2.4, "per queue at most one transaction in {DISPATCHING, REVISION, RETRY}; per sender at most
// one queue", are held by the schema itself: the transaction in flight is one column of the one row of its queue, and
// the queue of a sender is one unique column. A statement that would break one is refused with the name of the
// constraint.
func TestTheSchemaItselfRefuses(t *testing.T) {
	pool := busy(t)
	for _, c := range []struct{ constraint, sentence, sql string }{
		{"one_row_per_queue", "a second row of a queue, and with it a second transaction in flight",
			`INSERT INTO postern.queue
			(queue_id, context_id, head_seq, cur_seq, tail_seq, head_day, tail_day, fence, was, phase, entered_at)
			SELECT queue_id, context_id, head_seq, head_seq + 1, tail_seq, head_day, tail_day, fence, 'READY', 'DISPATCHING', now()
			FROM postern.queue WHERE phase = 'DISPATCHING' AND named`},
		{"in_flight_has_a_position", "a transaction in flight of a queue whose phase is none of those",
			`UPDATE postern.queue SET cur_seq = head_seq WHERE phase = 'READY'`},
		{"in_flight_has_a_position", "a phase in flight without its transaction",
			`UPDATE postern.queue SET cur_seq = NULL WHERE phase = 'WAITING_INCLUSION'`},
		{"position_lies_in_queue", "one in flight that is not in the queue",
			`UPDATE postern.queue SET cur_seq = tail_seq + 1 WHERE phase = 'DISPATCHING'`},
		{"phase_follows_the_machine", "an edge that is not in the table",
			`UPDATE postern.queue SET was = 'READY', phase = 'DELAY' WHERE phase = 'WAITING_INCLUSION'`},
		{"idle_is_empty", "IDLE with work",
			`UPDATE postern.queue SET was = phase, phase = 'IDLE' WHERE phase = 'READY'`},
		{"head_follows_tail_by_one", "a head beyond the tail",
			`UPDATE postern.queue SET head_seq = head_seq + 1 WHERE phase = 'IDLE'`},
		{"owner_has_work_in_flight", "an owner of what waits",
			`UPDATE postern.queue SET node_id = 1, node_epoch = 1 WHERE phase = 'READY'`},
		{"owner_has_an_epoch", "an owner of no incarnation",
			`UPDATE postern.queue SET node_epoch = NULL WHERE node_id IS NOT NULL`},
		{"waiting_has_a_lane", "a head that stands nowhere",
			`UPDATE postern.queue SET lane = NULL WHERE phase = 'READY'`},
		{"one_outcome_per_transaction", "a second end",
			`INSERT INTO postern.outcome (queue_id, seq, day, context_id, was, state)
			SELECT queue_id, seq, day, context_id, 'DISPATCHING', 'FAILED' FROM postern.outcome WHERE state = 'DONE'`},
		{"outcome_follows_the_machine", "an end that is none",
			`INSERT INTO postern.outcome (queue_id, seq, day, context_id, was, state)
			SELECT queue_id, seq, day, context_id, 'DISPATCHING', 'RETRY' FROM postern.task WHERE uid = 'l1'`},
		{"outcome_follows_the_machine", "an end that no rule leads to",
			`INSERT INTO postern.outcome (queue_id, seq, day, context_id, was, state)
			SELECT queue_id, seq, day, context_id, 'WAITING', 'DONE' FROM postern.task WHERE uid = 'l1'`},
		{"one_task_per_position", "a position twice",
			`INSERT INTO postern.task (queue_id, seq, day, context_id, type, data)
			SELECT queue_id, seq, day, context_id, type, data FROM postern.task WHERE uid = 'l1'`},
		{"one_transaction_per_key", "a key twice",
			`INSERT INTO postern.idempotency SELECT context_id, key, queue_id, seq + 1, day, body_hash FROM postern.idempotency WHERE key = 'l1'`},
		{"one_timer_per_queue", "two times at which a queue wants to be looked at",
			`INSERT INTO postern.timer SELECT queue_id, due_at + interval '1 s' FROM postern.timer`},

		{"one_queue_per_sender", "two senders that serve one queue",
			`UPDATE postern.sender SET queue_id = (SELECT queue_id FROM postern.queue WHERE phase = 'WAITING_INCLUSION') WHERE queue_id IS DISTINCT FROM
			(SELECT queue_id FROM postern.queue WHERE phase = 'WAITING_INCLUSION')`},
		{"sender_is_held_in_flight_only", "a sender of a queue with nothing in flight",
			`UPDATE postern.queue SET sender_id = 1 WHERE phase = 'READY'`},
		{"only_exclusive_lanes_are_held", "a lane that excludes nobody and is held",
			`UPDATE postern.lane SET holder = 1 WHERE kind = 'dispatcher'`},
	} {
		t.Run(c.constraint+"/"+c.sentence, func(t *testing.T) {
			_, err := pool.Exec(context.Background(), c.sql)
			var refused *pgconn.PgError
			if !errors.As(err, &refused) || partitioned(refused.ConstraintName) != c.constraint && refused.ConstraintName != c.constraint {
				t.Errorf("%v, want a violation of %s", err, c.constraint)
			}
		})
	}
}

// partitioned is the constraint of a table whose partition PostgreSQL names in the error.
func partitioned(name string) string {
	for _, table := range []string{"outcome", "task"} {
		if len(name) > len(table) && name[:len(table)+1] == table+"_" {
			return map[string]string{"outcome": "one_outcome_per_transaction", "task": "one_task_per_position"}[table]
		}
	}
	return name
}
