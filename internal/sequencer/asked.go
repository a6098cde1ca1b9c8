package sequencer

import "github.com/postern-dev/postern/internal/outbox"

// Codes that we give ourselves, as the reference numbers them (S2.5 row 12, S2.8).
const (
	CodeTimeout    = "20205"       // not included in time
	CodeNodeLost   = "node_lost"   // its node died in the call: another one asks (S2.13)
	CodeHandedBack = "handed_back" // its node stopped in the call: another one asks
	CodeFailed     = "20206"       // failed in its block
)

// Asked decides what the answer to /status by token means while the outcome of a dispatch is unknown
// (S2.10). Outcomes:
//
//   - pending or included: accepted, as in row 3 (ThenWait); included without a hash: done, as in row 4;
//   - failed: as in row 7, RETRY and in delay (ThenWait) or FAILED (ThenEnd);
//   - the worker never saw the token: the same attempt is sent again, no retry consumed (ThenCall);
//   - it has no /status: sent again if the dispatcher is idempotent (ThenCall), else UNRESOLVED (ThenEnd);
//   - nobody answered, or without a hash to watch: asked again later (ThenAsk).
func Asked(f Flight, s outbox.Status, d outbox.Dispatcher, chance float64) Step {
	r := begin(f, d, chance)
	switch s.State {
	case outbox.StatusPending, outbox.StatusIncluded:
		switch {
		case s.FailureReason != "":
			r.on(DispatchError).retried().because(outbox.ClassRetry, CodeFailed, s.FailureReason)
		case s.Hash == "" && s.State == outbox.StatusIncluded: // done without a hash, as by an answer with done
			r.on(Completed)
		case s.Hash == "":
			r.on(StatusUnreachable).because(outbox.ClassAmbiguous, "", "the worker knows the token, but names no hash to watch")
		default:
			r.on(Accepted).on(InclusionStarted)
		}
	case outbox.StatusFailed:
		r.on(DispatchError).retried().because(outbox.ClassRetry, CodeFailed, reason(s))
	case outbox.StatusUnknown:
		r.on(StatusUnknown)
	case outbox.StatusUnsupported:
		if d.Idempotent {
			r.on(StatusUnknown)
		} else {
			r.on(Unresolvable).because(outbox.ClassAmbiguous, "outcome_unknown", "dispatch outcome unknown")
		}
	default:
		r.on(StatusUnreachable).because(outbox.ClassAmbiguous, "status_unreachable", s.Message)
	}
	if r.step.Err == nil {
		r.step.Hash = s.Hash
	}
	return r.step
}

// reason is why a transaction failed in its block.
func reason(s outbox.Status) string {
	if s.FailureReason != "" {
		return s.FailureReason
	}
	return "the worker says that it failed, and names no reason"
}
