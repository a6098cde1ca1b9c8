package sequencer

import "github.com/postern-dev/postern/internal/machine"

// Tables lists the machines of the sequencer. Enums, labels, constraints, machine.md and GET /machines are
// derived from it.
func Tables() []machine.Table { return []machine.Table{Transaction, Queue} }

// Meanings says in one line what each state means, under "table.state".
var Meanings = map[string]string{
	"transaction.WAITING":     "Stored; has not gone out, or went back because its worker was away. Waits for its turn and a free sender.",
	"transaction.DISPATCHING": "The worker is being called, or was called and its outcome is unknown: it is asked before anything is sent again. What cannot be asked may be held for an operator.",
	"transaction.REVISION":    "The worker accepted it and named a hash; watched until it is included.",
	"transaction.RETRY":       "Failed, and will go out again after a delay, by the same sender and with another fee.",
	"transaction.DONE":        "Ended well. on-success is delivered.",
	"transaction.FAILED":      "Ended badly: the worker rejected it, or the retries are used up. on-failure is delivered.",
	"transaction.UNRESOLVED":  "Ended without a known outcome: it cannot be found out, or an operator abandoned it. No hook.",
	"transaction.CANCELLED":   "Ended because somebody cancelled it before anything was included. No hook.",

	"queue.FREE":              "Holds no sender: nothing waits, or the head waits for its turn. As a sender: can be bound to any queue.",
	"queue.BLOCKED":           "Its head is being dispatched; the sender bound to it signs for no other queue. What is held for an operator has none.",
	"queue.RETRY":             "The dispatch failed; the delay has not begun.",
	"queue.DELAY":             "Waits for its next attempt and keeps its sender.",
	"queue.INCLUSION":         "The dispatch was accepted; its inclusion is not polled for yet.",
	"queue.WAITING_INCLUSION": "The worker is asked at intervals whether it is included.",
}
