package sequencer

import "github.com/postern-dev/postern/internal/outbox"

// Elapsed decides what follows when the delay of a retry is over (rows 16 and 17), or when somebody
// wants to cancel it (row 19, f.Cancelling). Before it is called every earlier hash, and every earlier
// token of unknown outcome, has been asked about once more; earlier holds the answers, none if there
// was nothing to ask. Outcomes:
//
//   - one is included deep enough: DONE (ThenEnd); it must not be sent twice;
//   - one cannot be asked, or is included and not deep yet, or is pending and cannot be replaced: asked
//     again later (ThenWait);
//   - cancelling: CANCELLED (ThenEnd), or asked again later while one is pending and could still land;
//   - the limit was lowered below the retries that it has used: FAILED (ThenEnd), since row 14 holds in the delay, too;
//   - else: the next attempt, with its fee (ThenCall), or back into the lane when the sender was given
//     back meanwhile (ThenBack).
//
// In phase RETRY, where the delay has not begun because its node was lost in between, it begins now
// (row 14): ThenWait, or FAILED when the limit was lowered (ThenEnd).
func Elapsed(f Flight, earlier []outbox.Status, d outbox.Dispatcher, chance float64) Step {
	r := begin(f, d, chance)
	r.earlier = earlier
	switch {
	case f.Cancelling:
		r.on(Cancel)
	case f.Phase == outbox.PhaseRetry:
		r.on(RetryStarted)
	default:
		r.on(DelayElapsed)
	}
	if r.step.Err != nil {
		return r.step
	}
	switch r.step.State {
	case outbox.DONE:
		r.step.Hash = r.includedEarlier().Hash
	case outbox.FAILED:
		r.because(outbox.ClassRetry, "max_retries", "the limit of retries was lowered below those already used")
	case outbox.CANCELLED:
		r.because("", "cancelled", "cancelled; no earlier attempt was included")
	case outbox.RETRY:
		if len(r.step.Events) > 0 && r.step.Events[0] != RetryStarted {
			r.because("", "earlier_open",
				"an earlier attempt may still be included: asked again before anything else happens")
		}
	}
	return r.step
}

// includedEarlier is the earlier attempt that was included and counts, or nil.
func (r *run) includedEarlier() *outbox.Status {
	for i := range r.earlier {
		if deep(r.earlier[i], r.settings) {
			return &r.earlier[i]
		}
	}
	return nil
}

// earlierUnsure says whether some earlier attempt may yet turn out to have been included: it could not be
// asked (S2.11: that is never a failure), is in a block but not deep, or, where pending counts, is pending.
func (r *run) earlierUnsure(pending bool) bool {
	for _, s := range r.earlier {
		switch s.State {
		case outbox.StatusUnknown, outbox.StatusFailed:
		case outbox.StatusIncluded:
			if s.FailureReason == "" && !deep(s, r.settings) {
				return true
			}
		case outbox.StatusPending:
			if pending {
				return true
			}
		default:
			return true
		}
	}
	return false
}
