package sequencer

import (
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/twin"
)

// Dispatched decides what the answer to a dispatch call means (rows 3 to 8). Outcomes:
//
//   - accepted: REVISION, polled from now on; its timer wakes it after poll_every (ThenWait);
//   - done: DONE (ThenEnd);
//   - blocked: WAITING again, no retry consumed (ThenBack), pinned to its sender unless it is certain that nothing was
//     done. The step says what is blocked, and after what delay the queue is tried again where no gate closes;
//   - rejected: FAILED (ThenEnd);
//   - failed: RETRY and in delay (ThenWait), or FAILED when the retries are used up (ThenEnd);
//   - unknown: DISPATCHING still (ThenAsk); the first question goes out at once.
//
// chance in [0, 1) spreads the delay.
func Dispatched(f Flight, a outbox.Answer, d outbox.Dispatcher, chance float64) Step {
	r := begin(f, d, chance)
	r.after, r.untouched, r.blocks = a.After, a.NothingDone(), a.Scope
	if a.Class == outbox.ClassRetry && f.Called && !a.Told {
		// It tells of this call alone. An earlier one of the same token may have had an effect, and the next attempt
		// has another token: the worker is asked first.
		a.Class, r.askIn = outbox.ClassAmbiguous, a.After
	}
	event := eventOf(a)
	if event == DispatchTimeout && f.Resent && Mute(a) {
		// The next call uses up a retry and follows the question at once, so the question waits.
		r.askIn = max(r.askIn, patience(f.Since-a.Elapsed))
	}
	r.on(event)
	if event == Accepted {
		r.on(InclusionStarted)
	}
	r.retried()
	if r.step.Err != nil {
		return r.step
	}
	switch {
	case a.Class != "":
		r.because(a.Class, a.Code, a.Message)
	case event == DispatchTimeout:
		r.because(outbox.ClassAmbiguous, a.Code, "the worker's answer has neither hash, done nor error")
	}
	r.step.NothingDone = r.untouched
	r.step.Hash = a.Result.Hash
	if r.step.Blocks != "" {
		r.step.Until = a.Until
	}
	if r.step.Fee == "" {
		r.step.Fee = a.Result.Fee // the first fee, where the worker chose it (S2.9)
	}
	return r.step
}

// eventOf tells an answer's event. A class that we do not know says nothing about the transaction, so
// it is asked about.
func eventOf(a outbox.Answer) Event {
	switch a.Class {
	case outbox.ClassBlocked:
		return WorkerLost
	case outbox.ClassRejected:
		return Rejected
	case outbox.ClassRetry:
		return DispatchError
	case "":
		if a.Result.Done != nil || a.Result.Hash != "" && twin.Planted("hash_is_inclusion") {
			return Completed
		}
		if a.Result.Hash != "" {
			return Accepted
		}
	}
	if twin.Planted("unclear_is_done") {
		return Completed
	}
	return DispatchTimeout
}
