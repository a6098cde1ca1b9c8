package sequencer

import (
	"github.com/postern-dev/postern/internal/machine"
	"github.com/postern-dev/postern/internal/outbox"
)

// Queue is what a queue does with its head, and so the state of the sender bound to it (S2.3, S2.5). It
// hears the same events as Transaction and has the same guards; its effects concern queue, sender and
// worker. A queue is never at an end.
var Queue = machine.Table{
	Name:    "queue",
	Follows: "the sequencer of Socialcap",
	Initial: string(outbox.FREE),
	Events:  eventNames(),
	Rules: []machine.Rule{
		// row 1
		que(machine.Start, Posted, "type_known_and_queue_open", outbox.FREE),
		// row 2
		que(outbox.FREE, SenderBound, "head_may_go", outbox.BLOCKED, "call_worker"),
		// row 3
		que(outbox.BLOCKED, Accepted, "", outbox.INCLUSION),
		// row 4
		que(outbox.BLOCKED, Completed, "", outbox.FREE, "release_sender"),
		// row 5
		que(outbox.BLOCKED, WorkerLost, "", outbox.FREE, "leave_alone", "stand_in_lane"),
		// row 6; in rows 6, 7 and 12 some pools block the sender (S1.13)
		que(outbox.BLOCKED, Rejected, "", outbox.FREE, "release_sender", "blame_sender"),
		// row 7
		que(outbox.BLOCKED, DispatchError, "retries_left", outbox.QueueRETRY, "blame_sender"),
		que(outbox.BLOCKED, DispatchError, "", outbox.FREE, "release_sender", "blame_sender"),
		// row 8, with what S2.10 hears when it asks
		que(outbox.BLOCKED, DispatchTimeout, "", outbox.BLOCKED, "ask_status"),
		que(outbox.BLOCKED, NodeLost, "", outbox.BLOCKED, "ask_status"),
		que(outbox.BLOCKED, Restarted, "", outbox.BLOCKED, "ask_status"),
		que(outbox.BLOCKED, StatusUnreachable, "", outbox.BLOCKED, "ask_later"),
		que(outbox.BLOCKED, StatusUnknown, "", outbox.BLOCKED, "call_worker"),
		que(outbox.BLOCKED, Unreadable, "", outbox.BLOCKED, "call_worker"),
		que(outbox.BLOCKED, Unresolvable, "unknown_is_held", outbox.BLOCKED, "hold", "blame_sender"),
		que(outbox.BLOCKED, Unresolvable, "", outbox.FREE, "release_sender", "blame_sender"),
		// row 9
		que(outbox.INCLUSION, InclusionStarted, "", outbox.WAITING_INCLUSION, "poll"),
		// row 10
		que(outbox.WAITING_INCLUSION, InclusionStarted, "", outbox.WAITING_INCLUSION, "poll"),
		que(outbox.WAITING_INCLUSION, StatusPending, "", outbox.WAITING_INCLUSION, "poll"),
		que(outbox.WAITING_INCLUSION, StatusUnreachable, "", outbox.WAITING_INCLUSION, "poll"),
		// row 11
		que(outbox.WAITING_INCLUSION, Included, "", outbox.FREE, "release_sender"),
		// row 12, with replaceable: false of S2.11
		que(outbox.WAITING_INCLUSION, InclusionFailed, "failed_may_retry", outbox.QueueRETRY, "blame_sender"),
		que(outbox.WAITING_INCLUSION, InclusionFailed, "", outbox.FREE, "release_sender", "blame_sender"),
		que(outbox.WAITING_INCLUSION, InclusionTimeout, "held_for_operator", outbox.WAITING_INCLUSION, "poll"),
		que(outbox.WAITING_INCLUSION, InclusionTimeout, "retries_left", outbox.QueueRETRY, "blame_sender"),
		que(outbox.WAITING_INCLUSION, InclusionTimeout, "", outbox.FREE, "release_sender", "blame_sender"),
		// row 13: owner and fence change, nothing else
		que(outbox.INCLUSION, NodeLost, "", outbox.INCLUSION),
		que(outbox.INCLUSION, Restarted, "", outbox.INCLUSION),
		que(outbox.WAITING_INCLUSION, NodeLost, "", outbox.WAITING_INCLUSION),
		que(outbox.WAITING_INCLUSION, Restarted, "", outbox.WAITING_INCLUSION),
		que(outbox.QueueRETRY, NodeLost, "", outbox.QueueRETRY),
		que(outbox.QueueRETRY, Restarted, "", outbox.QueueRETRY),
		que(outbox.DELAY, NodeLost, "", outbox.DELAY),
		que(outbox.DELAY, Restarted, "", outbox.DELAY),
		// row 14
		que(outbox.QueueRETRY, RetryStarted, "retries_within_max", outbox.DELAY, "wait_for_retry"),
		que(outbox.QueueRETRY, RetryStarted, "", outbox.FREE, "release_sender"),
		// row 15
		que(outbox.DELAY, RetryStarted, "", outbox.DELAY),
		// rows 16 and 17
		que(outbox.DELAY, DelayElapsed, "earlier_included", outbox.FREE, "release_sender"),
		que(outbox.DELAY, DelayElapsed, "earlier_open", outbox.DELAY, "wait_to_ask"),
		que(outbox.DELAY, DelayElapsed, "limit_lowered", outbox.FREE, "release_sender"), // row 14
		que(outbox.DELAY, DelayElapsed, "sender_given_back", outbox.FREE, "stand_in_lane"),
		que(outbox.DELAY, DelayElapsed, "", outbox.BLOCKED, "call_worker"),
		// row 18: a transaction that waits holds no sender
		que(outbox.FREE, Cancel, "", outbox.FREE),
		// S2.15
		que(outbox.FREE, DependencyFailed, "", outbox.FREE),
		// row 19
		que(outbox.QueueRETRY, Cancel, "earlier_included", outbox.FREE, "release_sender"),
		que(outbox.QueueRETRY, Cancel, "earlier_may_land", outbox.QueueRETRY, "wait_to_ask"),
		que(outbox.QueueRETRY, Cancel, "", outbox.FREE, "release_sender"),
		que(outbox.DELAY, Cancel, "earlier_included", outbox.FREE, "release_sender"),
		que(outbox.DELAY, Cancel, "earlier_may_land", outbox.DELAY, "wait_to_ask"),
		que(outbox.DELAY, Cancel, "", outbox.FREE, "release_sender"),
		// row 20
		que(outbox.BLOCKED, Abandoned, "", outbox.FREE, "release_sender", "block_sender"),
		que(outbox.INCLUSION, Abandoned, "", outbox.FREE, "release_sender", "block_sender"),
		que(outbox.WAITING_INCLUSION, Abandoned, "", outbox.FREE, "release_sender", "block_sender"),
		que(outbox.QueueRETRY, Abandoned, "", outbox.FREE, "release_sender", "block_sender"),
		que(outbox.DELAY, Abandoned, "", outbox.FREE, "release_sender", "block_sender"),
		// ours: a held one has no sender
		que(outbox.BLOCKED, FoundDone, "", outbox.FREE, "release_sender"),
		que(outbox.BLOCKED, FoundNotDone, "", outbox.FREE, "stand_in_lane"),
		// ours: a transaction that was refused holds no sender
		que(outbox.FREE, Refused, "", outbox.FREE),
	},
}

func que(from outbox.QueueState, on Event, when string, to outbox.QueueState, do ...string) machine.Rule {
	return machine.Rule{From: string(from), On: string(on), When: when, To: string(to), Do: do}
}
