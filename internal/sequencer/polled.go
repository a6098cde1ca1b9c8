package sequencer

import (
	"fmt"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
)

// Polled decides what the answer to /status by hash means for a transaction in REVISION (rows 9 to 12,
// S2.11). f.Since counts from the acceptance of the hash. Outcomes:
//
//   - included deep enough: DONE (ThenEnd);
//   - failed in its block: RETRY and in delay (ThenWait), or FAILED (ThenEnd), as always where the worker says
//     that this is final;
//   - pending or unknown, in time, or included and not deep enough: polled again (ThenWait);
//   - pending after the deadline, or unknown after unknown_grace: as failed; but a dispatcher with
//     replaceable: false keeps it in REVISION with code 20205 and a message, and goes on polling: a late
//     inclusion still ends it well, an operator may abandon it (row 20);
//   - no worker could be asked: polled again, whatever the deadline says (ThenWait).
func Polled(f Flight, s outbox.Status, d outbox.Dispatcher, chance float64) Step {
	r := begin(f, d, chance)
	if f.Phase == outbox.PhaseInclusion {
		r.on(InclusionStarted)
	}
	deadline, grace := time.Duration(d.Inclusion.Deadline), time.Duration(d.Inclusion.UnknownGrace)
	failed := s.State == outbox.StatusFailed || s.State == outbox.StatusIncluded && s.FailureReason != ""
	switch late := deadline > 0 && f.Since >= deadline; {
	case failed:
		r.final = s.Final
		r.on(InclusionFailed).retried().because(classOf(s), CodeFailed, reason(s))
	case deep(s, d):
		r.on(Included)
	case s.State == outbox.StatusIncluded:
		r.on(StatusPending).because("", "", shallow(s, d))
	case s.State == outbox.StatusUnknown && f.Since >= grace:
		r.overdue(fmt.Sprintf("dropped: the worker does not know the hash %s after its acceptance",
			d.Inclusion.UnknownGrace))
	case (s.State == outbox.StatusPending || s.State == outbox.StatusUnknown) && late:
		r.overdue(fmt.Sprintf("not included within %s", d.Inclusion.Deadline))
	case s.State == outbox.StatusPending, s.State == outbox.StatusUnknown:
		r.on(StatusPending)
	default:
		r.on(StatusUnreachable).because("", "status_unreachable", s.Message)
	}
	if r.step.Err == nil {
		r.step.Hash = s.Hash
	}
	return r.step
}

// classOf is the class of a failure that a worker tells when it is asked.
func classOf(s outbox.Status) outbox.Class {
	if s.Final {
		return outbox.ClassRejected
	}
	return outbox.ClassRetry
}

// overdue is row 12 for what was answered too late, or never heard of.
func (r *run) overdue(message string) {
	r.on(InclusionTimeout).retried()
	if r.step.State == outbox.REVISION {
		message += "; the dispatcher says replaceable: false, so it is held for an operator"
	}
	r.because(outbox.ClassRetry, CodeTimeout, message)
}

// deep says whether s is an inclusion without failure that counts (row 11): in a block, and as deep as
// the dispatcher wants, or done, which nothing takes back. A worker that does not count says 1 by saying included.
func deep(s outbox.Status, d outbox.Dispatcher) bool {
	if s.State != outbox.StatusIncluded || s.FailureReason != "" {
		return false
	}
	return s.Done != nil || s.BlockHeight != "" && max(s.Confirmations, 1) >= d.Inclusion.Confirmations
}

func shallow(s outbox.Status, d outbox.Dispatcher) string {
	if s.BlockHeight == "" {
		return "the worker says included, but names no block_height"
	}
	return fmt.Sprintf("in block %s with %d of %d confirmations", s.BlockHeight,
		max(s.Confirmations, 1), d.Inclusion.Confirmations)
}
