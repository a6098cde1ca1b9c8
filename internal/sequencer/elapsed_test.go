package sequencer_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/sequencer"
)

func TestAfterTheDelayEarlierAttemptsAreAskedFirst(t *testing.T) {
	const D, R = outbox.PhaseDelay, outbox.PhaseRetry
	deep := outbox.Status{State: "included", Hash: "0x2", BlockHeight: "9", Confirmations: 2}
	shallow := outbox.Status{State: "included", Hash: "0x2", BlockHeight: "9", Confirmations: 1}
	reverted := outbox.Status{State: "included", Hash: "0x2", BlockHeight: "9", Confirmations: 2, FailureReason: "low"}
	pending, gone, away := outbox.Status{State: "pending"}, outbox.Status{State: "unknown"}, outbox.Status{State: "unreachable"}
	list := func(s ...outbox.Status) []outbox.Status { return s }
	call := step{Events: events{"DelayElapsed"}, State: outbox.DISPATCHING, Phase: outbox.PhaseDispatching, Then: "call", Attempt: 2, Retries: 1, Fee: "110"}
	end := func(e sequencer.Event, state outbox.State) step {
		return step{Events: events{e}, State: state, Phase: outbox.PhaseIdle, Then: "end", Attempt: 1, Retries: 1, Fee: "100", FreeSender: true}
	}
	done := func(e sequencer.Event) step {
		s := end(e, outbox.DONE)
		s.Hook, s.Hash = outbox.OnSuccess, "0x2"
		return s
	}
	cancelled := end("Cancel", outbox.CANCELLED)
	cancelled.Code, cancelled.Message = "cancelled", "cancelled; no earlier attempt was included"
	lowered := end("RetryStarted", outbox.FAILED)
	lowered.Retries, lowered.Hook, lowered.Class = 3, outbox.OnFailure, outbox.ClassRetry
	lowered.Code, lowered.Message = "max_retries", "the limit of retries was lowered below those already used"
	inDelay := lowered
	inDelay.Events = events{"DelayElapsed"}
	after := func(n int, s step) step {
		s.Retries = n
		return s
	}
	wait := func(p outbox.Phase, e sequencer.Event, delay time.Duration) step {
		return step{Events: events{e}, State: outbox.RETRY, Phase: p, Then: "wait", Attempt: 1, Retries: 1, Fee: "100", Delay: delay,
			Code: "earlier_open", Message: "an earlier attempt may still be included: asked again before anything else happens"}
	}
	for _, c := range []struct {
		name    string
		f       flight
		earlier []outbox.Status
		d       outbox.Dispatcher
		want    step
	}{
		{"row 16: nothing to ask", at(D), nil, settings(), call},
		{"row 16: none included", at(D), list(gone, reverted, outbox.Status{State: "failed"}), settings(), call},
		{"row 16: pending is replaced", at(D), list(pending), settings(), call},
		{"row 16: pending cannot be replaced", at(D), list(pending), settings(notReplaceable), wait(D, "DelayElapsed", time.Second)},
		{"row 16: one was included meanwhile", at(D), list(away, deep), settings(), done("DelayElapsed")},
		{"row 16: one is done, in no block", at(D), list(gone, finished("0x2")), settings(), done("DelayElapsed")},
		{"row 16: included, not deep yet", at(D), list(shallow), settings(), wait(D, "DelayElapsed", time.Second)},
		{"row 16: one cannot be asked", at(D, since(5*time.Second)), list(gone, away), settings(), wait(D, "DelayElapsed", 5*time.Second)},
		{"row 16: no /status any more", at(D, since(time.Hour)), list(outbox.Status{State: "unsupported"}), settings(), wait(D, "DelayElapsed", 30*time.Second)},
		{"row 17: the sender was given back", at(D, senderGone), list(gone), settings(),
			step{Events: events{"DelayElapsed"}, State: outbox.WAITING, Phase: outbox.PhaseIdle, Then: "back", Attempt: 2, Retries: 1, Fee: "110", FreeSender: true}},
		{"row 17: but one was included meanwhile", at(D, senderGone), list(deep), settings(), done("DelayElapsed")},
		{"row 19: none included", at(D, cancelling), list(gone), settings(), cancelled},
		{"row 19: none included, the delay has not begun", at(R, cancelling), nil, settings(), cancelled},
		{"row 19: one is included", at(D, cancelling), list(deep), settings(), done("Cancel")},
		{"row 19: one may still land", at(D, cancelling, since(4*time.Second)), list(pending), settings(), wait(D, "Cancel", 4*time.Second)},
		{"row 19: one cannot be asked", at(R, cancelling), list(away), settings(), wait(R, "Cancel", time.Second)},
		{"row 14: the delay begins after a loss in between", at(R), nil, settings(),
			step{Events: events{"RetryStarted"}, State: outbox.RETRY, Phase: D, Then: "wait", Attempt: 1, Retries: 1, Fee: "100", Delay: 5 * time.Second}},
		{"row 14: the limit was lowered in the delay", at(D, retries(3)), list(gone), settings(), inDelay},
		{"row 14: it was, and one was included", at(D, retries(3)), list(deep), settings(),
			after(3, done("DelayElapsed"))},
		{"row 14: it was, and one cannot be asked", at(D, retries(3)), list(away), settings(),
			after(3, wait(D, "DelayElapsed", time.Second))},
		{"row 14: it was, and the sender was given back", at(D, retries(3), senderGone), nil, settings(), inDelay},
		{"row 14: the limit is reached, and not lowered", at(D, retries(2)), list(gone), settings(), after(2, call)},
		{"row 14: the limit was lowered", at(R, func(f *flight) { f.Retries = 3 }), nil, settings(), lowered},
	} {
		if c.f.Retries == 0 {
			c.f.Retries = 1
		}
		same(t, c.name, sequencer.Elapsed(c.f, c.earlier, c.d, 0.5), c.want)
	}
}
