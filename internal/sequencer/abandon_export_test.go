package sequencer

import "github.com/postern-dev/postern/internal/outbox"

// Abandon ends a transaction that an outage made immovable (row 20, S2.21): UNRESOLVED at once, its sender released and
// blocked until somebody unblocks it, no hook. A transaction that is not in flight cannot be abandoned: Err.
func Abandon(f Flight) Step {
	r := begin(f, outbox.Dispatcher{}, 0)
	return r.on(Abandoned).because("", "abandoned", "abandoned by an operator, whatever the worker may still do").step
}
