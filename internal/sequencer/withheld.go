package sequencer

import (
	"time"

	"github.com/postern-dev/postern/internal/outbox"
)

// withheldFor is how long what was withheld rests before its queue is looked at again.
const withheldFor = time.Second

// Withheld decides what becomes of a lease whose call may not begin, since its type is in quarantine. Nothing was sent
// under it. Outcomes:
//
//   - a dispatch that was never sent: WAITING again, no retry consumed (ThenBack);
//   - one that may have been sent, which asks says, or was, and would be sent again: DISPATCHING still, to be asked
//     about (ThenAsk);
//   - anything else waits as it did (ThenWait).
func Withheld(f Flight, asks bool, d outbox.Dispatcher) Step {
	if f.Phase == outbox.PhaseDispatching && !asks && !f.Resent {
		r := begin(f, d, 0)
		r.untouched = true
		step := r.on(WorkerLost).step
		step.Blocks, step.Delay = "", 0 // the worker is well
		return step
	}
	step := stay(f)
	step.Then, step.Delay = ThenWait, withheldFor
	if f.Phase == outbox.PhaseDispatching {
		step.Then = ThenAsk
	}
	return step
}
