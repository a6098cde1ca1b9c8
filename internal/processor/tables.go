package processor

import "github.com/postern-dev/postern/internal/machine"

// Tables lists the machines of processors. Enums, constraints, machine.md and GET /machines are derived from it.
func Tables() []machine.Table { return []machine.Table{Machine} }

// Meanings says in one line what each state means, under "table.state".
var Meanings = map[string]string{
	"batch.Queued":           "Stands in its line. A tick that finds it at the head executes it, or puts it back while it is in its cooldown.",
	"batch.Executing":        "A transaction of the core carries its action, or all of an atomic batch or of one that goes to another installation; its end decides. Other ticks wait.",
	"batch.Timed_Out":        "No worker could be reached in time, and its ttl lasts: it can be sent again, under the same id. It stands in no line.",
	"batch.Waiting_Callback": "Its action was executed and is to be confirmed; it stands in no line.",
	"batch.Done":             "Ended, with a result.",
}
