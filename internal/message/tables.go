package message

import "github.com/postern-dev/postern/internal/machine"

// Tables lists the machine of messages.
func Tables() []machine.Table { return []machine.Table{Message} }

// Meanings says in one line what each state means, under "table.state".
var Meanings = map[string]string{
	"message.dispatched": "Stored in msg_out, or delivered and not acknowledged. A receiver that was handed it " +
		"and does not acknowledge it in time has it no more: another one is handed it.",
	"message.acknowledged": "Its receiver has it, or jobs were made of it. Its result is still to come.",
	"message.processed":    "Ended: its receiver has processed it, or its result is there.",
	"message.error": "Ended: a deadline was over, whose name its error has; or it was refused by rights, by its " +
		"receiver or by its sender.",
}
