package sequencer

import (
	"github.com/postern-dev/postern/internal/machine"
	"github.com/postern-dev/postern/internal/outbox"
)

const none outbox.State = machine.Start

// Transaction is the life of one transaction by the table of transitions (S2.5). Its effects concern the
// transaction alone; those on queue, sender and worker stand in Queue.
var Transaction = machine.Table{
	Name:     "transaction",
	Follows:  "the sequencer of Socialcap",
	Initial:  string(outbox.WAITING),
	Terminal: []string{string(outbox.DONE), string(outbox.FAILED), string(outbox.UNRESOLVED), string(outbox.CANCELLED)},
	Events:   eventNames(),
	Rules: []machine.Rule{
		// row 1
		txn(none, Posted, "type_known_and_queue_open", outbox.WAITING, "take_position"),
		// row 2
		txn(outbox.WAITING, SenderBound, "head_may_go", outbox.DISPATCHING),
		// row 3
		txn(outbox.DISPATCHING, Accepted, "", outbox.REVISION, "keep_attempt", "keep_hash"),
		// row 4
		txn(outbox.DISPATCHING, Completed, "", outbox.DONE, "keep_attempt", "on_success"),
		// row 5: no retry consumed
		txn(outbox.DISPATCHING, WorkerLost, "", outbox.WAITING, "keep_attempt"),
		// row 6
		txn(outbox.DISPATCHING, Rejected, "", outbox.FAILED, "keep_attempt", "on_failure"),
		// row 7
		txn(outbox.DISPATCHING, DispatchError, "retries_left", outbox.RETRY, "keep_attempt", "count_retry"),
		txn(outbox.DISPATCHING, DispatchError, "", outbox.FAILED, "keep_attempt", "on_failure"),
		// row 8, with what S2.10 hears when it asks
		txn(outbox.DISPATCHING, DispatchTimeout, "", outbox.DISPATCHING),
		txn(outbox.DISPATCHING, NodeLost, "", outbox.DISPATCHING),
		txn(outbox.DISPATCHING, Restarted, "", outbox.DISPATCHING),
		txn(outbox.DISPATCHING, StatusUnreachable, "", outbox.DISPATCHING),
		txn(outbox.DISPATCHING, StatusUnknown, "", outbox.DISPATCHING),
		txn(outbox.DISPATCHING, Unreadable, "", outbox.DISPATCHING, "count_retry"),
		txn(outbox.DISPATCHING, Unresolvable, "unknown_is_held", outbox.DISPATCHING),
		txn(outbox.DISPATCHING, Unresolvable, "", outbox.UNRESOLVED, "keep_attempt"), // no hook
		// rows 9 and 10
		txn(outbox.REVISION, InclusionStarted, "", outbox.REVISION),
		txn(outbox.REVISION, StatusPending, "", outbox.REVISION),
		txn(outbox.REVISION, StatusUnreachable, "", outbox.REVISION),
		// row 11
		txn(outbox.REVISION, Included, "", outbox.DONE, "keep_attempt", "on_success"),
		// row 12, with replaceable: false of S2.11
		txn(outbox.REVISION, InclusionFailed, "failed_may_retry", outbox.RETRY, "keep_attempt", "count_retry"),
		txn(outbox.REVISION, InclusionFailed, "", outbox.FAILED, "keep_attempt", "on_failure"),
		txn(outbox.REVISION, InclusionTimeout, "held_for_operator", outbox.REVISION),
		txn(outbox.REVISION, InclusionTimeout, "retries_left", outbox.RETRY, "keep_attempt", "count_retry"),
		txn(outbox.REVISION, InclusionTimeout, "", outbox.FAILED, "keep_attempt", "on_failure"),
		// row 13
		txn(outbox.REVISION, NodeLost, "", outbox.REVISION),
		txn(outbox.REVISION, Restarted, "", outbox.REVISION),
		txn(outbox.RETRY, NodeLost, "", outbox.RETRY),
		txn(outbox.RETRY, Restarted, "", outbox.RETRY),
		// rows 15 and 14: one state here, two phases of the queue
		txn(outbox.RETRY, RetryStarted, "in_delay", outbox.RETRY),
		txn(outbox.RETRY, RetryStarted, "retries_within_max", outbox.RETRY),
		txn(outbox.RETRY, RetryStarted, "", outbox.FAILED, "on_failure"),
		// rows 16 and 17; a hash that cannot be asked about is asked about again (S2.11)
		txn(outbox.RETRY, DelayElapsed, "earlier_included", outbox.DONE, "on_success"),
		txn(outbox.RETRY, DelayElapsed, "earlier_open", outbox.RETRY),
		txn(outbox.RETRY, DelayElapsed, "limit_lowered", outbox.FAILED, "on_failure"), // row 14
		txn(outbox.RETRY, DelayElapsed, "sender_given_back", outbox.WAITING, "next_attempt"),
		txn(outbox.RETRY, DelayElapsed, "", outbox.DISPATCHING, "next_attempt"),
		// row 18
		txn(outbox.WAITING, Cancel, "", outbox.CANCELLED, "mark_cancelled"),
		// S2.15
		txn(outbox.WAITING, DependencyFailed, "", outbox.FAILED, "on_failure"),
		// row 19
		txn(outbox.RETRY, Cancel, "earlier_included", outbox.DONE, "on_success"),
		txn(outbox.RETRY, Cancel, "earlier_may_land", outbox.RETRY),
		txn(outbox.RETRY, Cancel, "", outbox.CANCELLED),
		// row 20
		txn(outbox.DISPATCHING, Abandoned, "", outbox.UNRESOLVED),
		txn(outbox.REVISION, Abandoned, "", outbox.UNRESOLVED),
		txn(outbox.RETRY, Abandoned, "", outbox.UNRESOLVED),
		// ours: a held one ends, or goes out again, by an operator's word
		txn(outbox.DISPATCHING, FoundDone, "", outbox.DONE, "on_success"),
		txn(outbox.DISPATCHING, FoundNotDone, "", outbox.WAITING),
		// ours: never went out, no hook
		txn(outbox.WAITING, Refused, "", outbox.FAILED, "mark_cancelled"),
	},
}

func txn(from outbox.State, on Event, when string, to outbox.State, do ...string) machine.Rule {
	return machine.Rule{From: string(from), On: string(on), When: when, To: string(to), Do: do}
}
