package sequencer_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/sequencer"
)

func TestInclusionIsWatchedUntilItIsDeepEnough(t *testing.T) {
	const W = outbox.PhaseWaitingInclusion
	on := func(e sequencer.Event, code, message string) step {
		return step{Events: events{e}, State: outbox.REVISION, Phase: W, Then: "wait", Attempt: 1, Fee: "100", Delay: 10 * time.Second, Hash: "0xaa", Code: code, Message: message}
	}
	again := func(e sequencer.Event, code, message string) step {
		return step{Events: events{e, "RetryStarted"}, State: outbox.RETRY, Phase: outbox.PhaseDelay, Then: "wait", Attempt: 1, Retries: 1, Fee: "100",
			Delay: 5 * time.Second, Answered: true, Hash: "0xaa", Class: outbox.ClassRetry, Code: code, Message: message}
	}
	failed := func(e sequencer.Event, n int, code, message string) step {
		return step{Events: events{e}, State: outbox.FAILED, Phase: outbox.PhaseIdle, Then: "end", Attempt: 1, Retries: n, Fee: "100", Answered: true,
			Hook: outbox.OnFailure, FreeSender: true, Hash: "0xaa", Class: outbox.ClassRetry, Code: code, Message: message}
	}
	final := func(s step) step { s.Class = outbox.ClassRejected; return s }
	done := step{Events: events{"Included"}, State: outbox.DONE, Phase: outbox.PhaseIdle, Then: "end", Attempt: 1, Fee: "100", Answered: true,
		Hook: outbox.OnSuccess, FreeSender: true, Hash: "0xaa"}
	first := on("StatusPending", "", "")
	first.Events = events{"InclusionStarted", "StatusPending"}
	held := on("InclusionTimeout", "20205", "not included within 2h46m40s; the dispatcher says replaceable: false, so it is held for an operator")
	held.Class = outbox.ClassRetry
	shallow := on("StatusPending", "", "in block 9 with 1 of 2 confirmations")
	counts := func(n int) outbox.Status {
		return outbox.Status{State: "included", BlockHeight: "9", Confirmations: n}
	}
	one := func(d *outbox.Dispatcher) { d.Inclusion.Confirmations = 1 }
	const late = 10000 * time.Second
	lateMessage := "not included within 2h46m40s"
	dropped := "dropped: the worker does not know the hash 5m after its acceptance"
	for _, c := range []struct {
		name string
		f    flight
		s    outbox.Status
		d    outbox.Dispatcher
		want step
	}{
		{"row 9: nobody polled it before", at(outbox.PhaseInclusion), outbox.Status{State: "pending"}, settings(), first},
		{"row 10: pending", at(W, since(late-1)), outbox.Status{State: "pending"}, settings(), on("StatusPending", "", "")},
		{"row 10: unknown, within its grace", at(W, since(5*time.Minute-1)), outbox.Status{State: "unknown"}, settings(), on("StatusPending", "", "")},
		{"row 10: nobody could be asked, long after the deadline", at(W, since(9*late)), outbox.Status{State: "unreachable", Message: "refused"}, settings(), on("StatusUnreachable", "status_unreachable", "refused")},
		{"row 10: no /status any more is no failure", at(W, since(9*late)), outbox.Status{State: "unsupported"}, settings(), on("StatusUnreachable", "status_unreachable", "")},
		{"row 10: a state that we do not know is no failure", at(W, since(9*late)), outbox.Status{State: "odd"}, settings(), on("StatusUnreachable", "status_unreachable", "")},
		{"row 10: not deep yet", at(W), counts(1), settings(), shallow},
		{"row 10: not deep yet, and the deadline is over", at(W, since(late)), counts(1), settings(), shallow},
		{"row 10: the worker does not count", at(W), counts(0), settings(), shallow},
		{"row 10: included in no block", at(W), outbox.Status{State: "included", Confirmations: 3}, settings(), on("StatusPending", "", "the worker says included, but names no block_height")},
		{"row 11: deep enough", at(W), counts(2), settings(), done},
		{"row 11: deep enough after the deadline", at(W, since(late)), counts(3), settings(), done},
		{"row 11: done, in no block", at(W), finished(""), settings(), done},
		{"row 11: one is enough where the worker does not count", at(W), counts(0), settings(one), done},
		{"row 12: failed in its block", at(W), outbox.Status{State: "included", BlockHeight: "9", Confirmations: 5, FailureReason: "low"}, settings(), again("InclusionFailed", "20206", "low")},
		{"row 12: the worker says failed", at(W), outbox.Status{State: "failed", FailureReason: "low"}, settings(), again("InclusionFailed", "20206", "low")},
		{"row 12: failed, no retry left", at(W, retries(2)), outbox.Status{State: "failed", FailureReason: "low"}, settings(), failed("InclusionFailed", 2, "20206", "low")},
		{"row 12: failed, and its worker says that this is final", at(W),
			outbox.Status{State: "failed", FailureReason: "low", Final: true}, settings(),
			final(failed("InclusionFailed", 0, "20206", "low"))},
		{"row 12: failed, on_failed false", at(W), outbox.Status{State: "failed", FailureReason: "low"}, settings(failsForGood), failed("InclusionFailed", 0, "20206", "low")},
		{"row 12: failed is no timeout, replaceable or not", at(W), outbox.Status{State: "failed", FailureReason: "low"}, settings(notReplaceable), again("InclusionFailed", "20206", "low")},
		{"row 12: pending after the deadline", at(W, since(late)), outbox.Status{State: "pending"}, settings(), again("InclusionTimeout", "20205", lateMessage)},
		{"row 12: on_failed says nothing about a timeout", at(W, since(late)), outbox.Status{State: "pending"}, settings(failsForGood), again("InclusionTimeout", "20205", lateMessage)},
		{"row 12: late, no retry left", at(W, since(late), retries(2)), outbox.Status{State: "pending"}, settings(), failed("InclusionTimeout", 2, "20205", lateMessage)},
		{"row 12: dropped", at(W, since(5*time.Minute)), outbox.Status{State: "unknown"}, settings(), again("InclusionTimeout", "20205", dropped)},
		{"S2.11: late, and cannot be replaced", at(W, since(late)), outbox.Status{State: "pending"}, settings(notReplaceable), held},
		{"S2.11: late, cannot be replaced, and no retry would follow", at(W, since(late), retries(2)), outbox.Status{State: "pending"}, settings(notReplaceable), failed("InclusionTimeout", 2, "20205", lateMessage)},
	} {
		c.s.Hash = "0xaa"
		same(t, c.name, sequencer.Polled(c.f, c.s, c.d, 0.5), c.want)
	}
}
