package sequencer

import "github.com/postern-dev/postern/internal/outbox"

// CodeFound is the code of a transaction that was held, and ends or goes out again by an operator's word.
const CodeFound = "found_by_operator"

// Found decides about a transaction that is held when an operator has found out how its call ended (S2.10). Only one in
// DISPATCHING can be held, so any other is an Err. Outcomes:
//
//   - it was done: DONE, as in row 4 (ThenEnd);
//   - it was not done: WAITING again, to be sent under the same token by the sender that it is pinned to; no retry
//     consumed (ThenBack).
func Found(f Flight, done bool) Step {
	r := begin(f, outbox.Dispatcher{}, 0)
	if done {
		return r.on(FoundDone).because("", CodeFound, "an operator found that it was done").step
	}
	return r.on(FoundNotDone).because("", CodeFound, "an operator found that it was not done").step
}
