package sequencer

import "github.com/postern-dev/postern/internal/outbox"

// CodeFound is the code of what ended, or goes out again, since an operator found out what had come of it.
const CodeFound = "found_by_operator"

// Found decides what follows when an operator has found out what came of a transaction that is held since nobody knew
// (S2.10). What is not in DISPATCHING cannot be held: Err. Outcomes:
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
