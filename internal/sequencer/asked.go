package sequencer

import (
	"cmp"

	"github.com/postern-dev/postern/internal/outbox"
)

// Codes that we give ourselves, as the reference numbers them (S2.5 row 12, S2.8).
const (
	CodeTimeout    = "20205"       // not included in time
	CodeNodeLost   = "node_lost"   // its node died in the call: another one asks (S2.13)
	CodeHandedBack = "handed_back" // its node stopped in the call: another one asks
	CodeInVain     = "in_vain"     // sent again, and no answer to that was seen
	CodeFailed     = "20206"       // failed in its block
	CodeUnknown    = "outcome_unknown"
)

// Asked decides what the answer to /status by token means while the outcome of a dispatch is unknown
// (S2.10). Outcomes:
//
//   - pending or included: accepted, as in row 3 (ThenWait); included without a hash, or done: done, as in row 4;
//   - failed: as in row 7, RETRY and in delay (ThenWait) or FAILED (ThenEnd); as in row 6, where
//     the worker says that this is final;
//   - the worker never saw the token: the same attempt is sent again at once, no retry consumed (ThenCall); where that
//     was done before, or the call was the probe of a gate, WAITING again, as in row 5 (ThenBack): the delay of its
//     queue, the gate and a pause hold it, and its sender serves others meanwhile;
//   - it has no /status: as if it never saw the token if the dispatcher is idempotent, else held for an operator
//     (ThenHold), or UNRESOLVED where the dispatcher says so (ThenEnd);
//   - the answer is a proxy's 502 or 503, and the worker never saw the token or cannot be asked: WAITING again,
//     as in row 5 (ThenBack);
//   - the answer could not be read: sent again at most max_retries times, and each counts as a retry; then
//     held, or UNRESOLVED, as above;
//   - no answer came, or one without a hash to watch: asked again later (ThenAsk).
func Asked(f Flight, s outbox.Status, d outbox.Dispatcher, chance float64) Step {
	r := begin(f, d, chance)
	switch s.State {
	case outbox.StatusPending, outbox.StatusIncluded:
		switch {
		case s.FailureReason != "":
			r.on(DispatchError).retried().because(outbox.ClassRetry, CodeFailed, s.FailureReason)
		case s.Done != nil, s.Hash == "" && s.State == outbox.StatusIncluded: // as by an answer with done
			r.on(Completed)
		case s.Hash == "":
			r.on(StatusUnreachable).because(outbox.ClassAmbiguous, "", AtWork)
		default:
			r.on(Accepted).on(InclusionStarted)
		}
	case outbox.StatusFailed:
		if s.Final {
			r.on(Rejected).because(outbox.ClassRejected, CodeFailed, reason(s))
			break
		}
		r.on(DispatchError).retried().because(outbox.ClassRetry, CodeFailed, reason(s))
	case outbox.StatusUnknown, outbox.StatusUnsupported:
		r.again(s.State == outbox.StatusUnknown || d.Idempotent)
	default:
		r.on(StatusUnreachable).because(outbox.ClassAmbiguous, "status_unreachable", s.Message)
	}
	if r.step.Err == nil {
		r.step.Hash = s.Hash
	}
	return r.step
}

// AtWork is what is heard of a call that its worker knows, and for which it has nothing to show yet.
const AtWork = "the worker knows the token, but names no hash to watch"

// again sends the same token again where that is safe, since the worker never saw it or does not mind.
func (r *run) again(safe bool) {
	switch u := r.Unclear; {
	case u.away():
		r.on(WorkerLost).because(outbox.ClassBlocked, u.Code, u.Why)
		r.step.Until = u.Until
	case !safe:
		r.on(Unresolvable).because(outbox.ClassAmbiguous, CodeUnknown,
			u.because("the worker has no /status to be asked, and its dispatcher is not idempotent"))
	case !u.unreadable() && r.Again:
		why := cmp.Or(u.Why, "the call was made again, and came to nothing again")
		r.on(WorkerLost).because(outbox.ClassBlocked, cmp.Or(u.Code, CodeInVain), why)
		r.step.Until, r.step.Doubted = u.Until, u.Told
	case !u.unreadable():
		r.on(StatusUnknown)
	case r.Retries < r.MaxRetries:
		r.on(Unreadable).because(outbox.ClassAmbiguous, u.Code, u.Why)
	default:
		r.on(Unresolvable).because(outbox.ClassAmbiguous, CodeUnknown, u.because("the retries are used up"))
	}
}

// because says why an outcome stays unknown: by the answer, and by the reason that it cannot be cured.
func (u Unclear) because(incurable string) string {
	if u.Why == "" {
		return "dispatch outcome unknown: " + incurable
	}
	return "dispatch outcome unknown: " + u.Why + "; " + incurable
}

// reason is why a transaction failed in its block.
func reason(s outbox.Status) string {
	if s.FailureReason != "" {
		return s.FailureReason
	}
	return "the worker says that it failed, and names no reason"
}
