package sequencer_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/machine"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/sequencer"
)

type (
	flight = sequencer.Flight
	step   = sequencer.Step
	events = []sequencer.Event
)

// settings returns a dispatcher with defaults whose retry delay is 5 s at chance one half.
func settings(change ...func(*outbox.Dispatcher)) outbox.Dispatcher {
	d := outbox.DefaultDispatcher()
	d.Retry.Initial = outbox.Duration(10 * time.Second)
	d.Inclusion.Confirmations = 2
	for _, c := range change {
		c(&d)
	}
	return d
}

func idempotent(d *outbox.Dispatcher)     { d.Idempotent = true }
func notReplaceable(d *outbox.Dispatcher) { d.Replaceable = false }
func failsForGood(d *outbox.Dispatcher)   { d.Retry.OnFailed = false }

// at is a flight in its first attempt, with two retries allowed.
func at(p outbox.Phase, change ...func(*flight)) flight {
	f := flight{Phase: p, Attempt: 1, MaxRetries: 2, Fee: "100", FirstFee: "100"}
	for _, c := range change {
		c(&f)
	}
	return f
}

func since(d time.Duration) func(*flight) { return func(f *flight) { f.Since = d } }
func retries(n int) func(*flight)         { return func(f *flight) { f.Retries = n } }
func cancelling(f *flight)                { f.Cancelling = true }
func senderGone(f *flight)                { f.SenderGone = true }

func same(t *testing.T, name string, got, want step) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %+v\nwant %+v", name, got, want)
	}
}

func TestAnAnswerToADispatchIsDecidedByItsClass(t *testing.T) {
	const D = outbox.PhaseDispatching
	sent := outbox.Result{Hash: "0xaa", Fee: "7"}
	for _, c := range []struct {
		name string
		f    flight
		a    outbox.Answer
		want step
	}{
		{"row 3 and 9: accepted, and polled from now on", at(D), outbox.Answer{Result: sent},
			step{Events: events{"Accepted", "InclusionStarted"}, State: outbox.REVISION, Phase: outbox.PhaseWaitingInclusion,
				Then: "wait", Attempt: 1, Fee: "100", Delay: 10 * time.Second, Answered: true, KeepHash: true, Hash: "0xaa"}},
		{"the worker chose the first fee", at(D, func(f *flight) { f.Fee, f.FirstFee = "", "" }), outbox.Answer{Result: sent},
			step{Events: events{"Accepted", "InclusionStarted"}, State: outbox.REVISION, Phase: outbox.PhaseWaitingInclusion,
				Then: "wait", Attempt: 1, Fee: "7", Delay: 10 * time.Second, Answered: true, KeepHash: true, Hash: "0xaa"}},
		{"row 4: done at once, also with a hash", at(D), outbox.Answer{Result: outbox.Result{Hash: "0xaa", Done: json.RawMessage(`{"x":1}`)}},
			step{Events: events{"Completed"}, State: outbox.DONE, Phase: outbox.PhaseIdle, Then: "end", Attempt: 1, Fee: "100",
				Answered: true, Hook: outbox.OnSuccess, FreeSender: true, Hash: "0xaa"}},
		{"row 5: the worker is away", at(D, retries(1)), outbox.Answer{Class: outbox.ClassBlocked, Code: "502", Message: "away"},
			step{Events: events{"WorkerLost"}, State: outbox.WAITING, Phase: outbox.PhaseIdle, Then: "back", Attempt: 1, Retries: 1, Fee: "100",
				Answered: true, FreeSender: true, GateWorker: true, Class: outbox.ClassBlocked, Code: "502", Message: "away"}},
		{"row 5: the worker says until when", at(D), outbox.Answer{Class: outbox.ClassBlocked, Until: time.Unix(9, 0)},
			step{Events: events{"WorkerLost"}, State: outbox.WAITING, Phase: outbox.PhaseIdle, Then: "back", Attempt: 1, Fee: "100",
				Answered: true, FreeSender: true, GateWorker: true, Until: time.Unix(9, 0), Class: outbox.ClassBlocked}},
		{"row 5: pinned by an earlier hash", at(D, func(f *flight) { f.LastHash = "0x1" }), outbox.Answer{Class: outbox.ClassBlocked},
			step{Events: events{"WorkerLost"}, State: outbox.WAITING, Phase: outbox.PhaseIdle, Then: "back", Attempt: 1, Fee: "100",
				Answered: true, PinSender: true, GateWorker: true, Class: outbox.ClassBlocked}},
		{"row 5: pinned by an open outcome", at(D, func(f *flight) { f.EarlierOpen = true }), outbox.Answer{Class: outbox.ClassBlocked},
			step{Events: events{"WorkerLost"}, State: outbox.WAITING, Phase: outbox.PhaseIdle, Then: "back", Attempt: 1, Fee: "100",
				Answered: true, PinSender: true, GateWorker: true, Class: outbox.ClassBlocked}},
		{"row 5: pinned by the client", at(D, func(f *flight) { f.PinnedSender = true }), outbox.Answer{Class: outbox.ClassBlocked},
			step{Events: events{"WorkerLost"}, State: outbox.WAITING, Phase: outbox.PhaseIdle, Then: "back", Attempt: 1, Fee: "100",
				Answered: true, PinSender: true, GateWorker: true, Class: outbox.ClassBlocked}},
		{"row 6: rejected", at(D), outbox.Answer{Class: outbox.ClassRejected, Code: "500", Message: "no account"},
			step{Events: events{"Unresolvable"}, State: outbox.UNRESOLVED, Phase: outbox.PhaseIdle, Then: "end", Attempt: 1, Fee: "100",
				Answered: true, FreeSender: true, Class: outbox.ClassRejected, Code: "500", Message: "no account"}},
		{"rows 7 and 14: failed, in delay", at(D), outbox.Answer{Class: outbox.ClassRetry, Code: "20203"},
			step{Events: events{"DispatchError", "RetryStarted"}, State: outbox.RETRY, Phase: outbox.PhaseDelay, Then: "wait", Attempt: 1,
				Retries: 1, Fee: "100", Delay: 5 * time.Second, Answered: true, Class: outbox.ClassRetry, Code: "20203"}},
		{"rows 7 and 14: the second delay doubles", at(D, retries(1)), outbox.Answer{Class: outbox.ClassRetry, Code: "20203"},
			step{Events: events{"DispatchError", "RetryStarted"}, State: outbox.RETRY, Phase: outbox.PhaseDelay, Then: "wait", Attempt: 1,
				Retries: 2, Fee: "100", Delay: 10 * time.Second, Answered: true, Class: outbox.ClassRetry, Code: "20203"}},
		{"rows 7 and 14: the worker named a least delay", at(D), outbox.Answer{Class: outbox.ClassRetry, After: time.Minute},
			step{Events: events{"DispatchError", "RetryStarted"}, State: outbox.RETRY, Phase: outbox.PhaseDelay, Then: "wait", Attempt: 1,
				Retries: 1, Fee: "100", Delay: time.Minute, Answered: true, Class: outbox.ClassRetry}},
		{"row 7: the retries are used up", at(D, retries(2)), outbox.Answer{Class: outbox.ClassRetry, Code: "20203"},
			step{Events: events{"DispatchError"}, State: outbox.FAILED, Phase: outbox.PhaseIdle, Then: "end", Attempt: 1, Retries: 2, Fee: "100",
				Answered: true, Hook: outbox.OnFailure, FreeSender: true, Class: outbox.ClassRetry, Code: "20203"}},
		{"row 8: nobody knows; asked at once", at(D, since(10*time.Minute)), outbox.Answer{Class: outbox.ClassAmbiguous, Code: "timeout", Elapsed: 10 * time.Minute},
			step{Events: events{"DispatchTimeout"}, State: outbox.DISPATCHING, Phase: D, Then: "ask", Attempt: 1, Fee: "100",
				Class: outbox.ClassAmbiguous, Code: "timeout"}},
		{"row 8: not in a tight loop when the same attempt was sent before", at(D, since(8*time.Second)), outbox.Answer{Class: outbox.ClassAmbiguous, Elapsed: time.Second},
			step{Events: events{"DispatchTimeout"}, State: outbox.DISPATCHING, Phase: D, Then: "ask", Delay: 7 * time.Second, Attempt: 1, Fee: "100",
				Class: outbox.ClassAmbiguous}},
		{"row 8: an answer that says nothing", at(D), outbox.Answer{},
			step{Events: events{"DispatchTimeout"}, State: outbox.DISPATCHING, Phase: D, Then: "ask", Attempt: 1, Fee: "100",
				Class: outbox.ClassAmbiguous, Message: "the worker's answer has neither hash, done nor error"}},
		{"row 8: a class that we do not know", at(D), outbox.Answer{Class: "odd", Result: sent},
			step{Events: events{"DispatchTimeout"}, State: outbox.DISPATCHING, Phase: D, Then: "ask", Attempt: 1, Fee: "100", Class: "odd", Hash: "0xaa"}},
	} {
		same(t, c.name, sequencer.Dispatched(c.f, c.a, settings(), 0.5), c.want)
	}
}

func TestAnUnknownOutcomeIsAskedAbout(t *testing.T) {
	const D = outbox.PhaseDispatching
	still := func(s step) step {
		s.State, s.Phase, s.Attempt, s.Fee = outbox.DISPATCHING, D, 1, "100"
		return s
	}
	accepted := step{Events: events{"Accepted", "InclusionStarted"}, State: outbox.REVISION, Phase: outbox.PhaseWaitingInclusion,
		Then: "wait", Attempt: 1, Fee: "100", Delay: 10 * time.Second, Answered: true, KeepHash: true, Hash: "0xaa"}
	failed := step{Events: events{"DispatchError", "RetryStarted"}, State: outbox.RETRY, Phase: outbox.PhaseDelay, Then: "wait", Attempt: 1,
		Retries: 1, Fee: "100", Delay: 5 * time.Second, Answered: true, Hash: "0xaa", Class: outbox.ClassRetry, Code: "20206", Message: "bad proof"}
	unreachable := func(delay time.Duration) step {
		return still(step{Events: events{"StatusUnreachable"}, Then: "ask", Delay: delay, Class: outbox.ClassAmbiguous, Code: "status_unreachable", Message: "refused"})
	}
	for _, c := range []struct {
		name string
		f    flight
		s    outbox.Status
		d    outbox.Dispatcher
		want step
	}{
		{"pending", at(D), outbox.Status{State: "pending", Hash: "0xaa"}, settings(), accepted},
		{"included", at(D), outbox.Status{State: "included", Hash: "0xaa", BlockHeight: "9"}, settings(), accepted},
		{"failed", at(D), outbox.Status{State: "failed", Hash: "0xaa", FailureReason: "bad proof"}, settings(), failed},
		{"included, but failed", at(D), outbox.Status{State: "included", Hash: "0xaa", FailureReason: "bad proof"}, settings(), failed},
		{"failed, and no retry left", at(D, retries(2)), outbox.Status{State: "failed"}, settings(),
			step{Events: events{"DispatchError"}, State: outbox.FAILED, Phase: outbox.PhaseIdle, Then: "end", Attempt: 1, Retries: 2, Fee: "100", Answered: true,
				Hook: outbox.OnFailure, FreeSender: true, Class: outbox.ClassRetry, Code: "20206", Message: "the worker says that it failed, and names no reason"}},
		{"never saw the token", at(D), outbox.Status{State: "unknown"}, settings(), still(step{Events: events{"StatusUnknown"}, Then: "call"})},
		{"no /status, idempotent", at(D), outbox.Status{State: "unsupported"}, settings(idempotent), still(step{Events: events{"StatusUnknown"}, Then: "call"})},
		{"no /status", at(D), outbox.Status{State: "unsupported"}, settings(),
			step{Events: events{"Unresolvable"}, State: outbox.UNRESOLVED, Phase: outbox.PhaseIdle, Then: "end", Attempt: 1, Fee: "100", Answered: true, FreeSender: true,
				Class: outbox.ClassAmbiguous, Code: "outcome_unknown", Message: "dispatch outcome unknown"}},
		{"unreachable at once", at(D), outbox.Status{State: "unreachable", Message: "refused"}, settings(), unreachable(time.Second)},
		{"unreachable after 8 s", at(D, since(8*time.Second)), outbox.Status{State: "unreachable", Message: "refused"}, settings(), unreachable(8 * time.Second)},
		{"unreachable for an hour", at(D, since(time.Hour)), outbox.Status{State: "unreachable", Message: "refused"}, settings(), unreachable(30 * time.Second)},
		{"pending without hash", at(D), outbox.Status{State: "pending"}, settings(), still(step{Events: events{"StatusUnreachable"}, Then: "ask", Delay: time.Second,
			Class: outbox.ClassAmbiguous, Message: "the worker knows the token, but names no hash to watch"})},
	} {
		same(t, c.name, sequencer.Asked(c.f, c.s, c.d, 0.5), c.want)
	}
}

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
	dropped := "dropped: the worker does not know the hash 5m0s after its acceptance"
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
		{"row 11: one is enough where the worker does not count", at(W), counts(0), settings(one), done},
		{"row 12: failed in its block", at(W), outbox.Status{State: "included", BlockHeight: "9", Confirmations: 5, FailureReason: "low"}, settings(), again("InclusionFailed", "20206", "low")},
		{"row 12: the worker says failed", at(W), outbox.Status{State: "failed", FailureReason: "low"}, settings(), again("InclusionFailed", "20206", "low")},
		{"row 12: failed, no retry left", at(W, retries(2)), outbox.Status{State: "failed", FailureReason: "low"}, settings(), failed("InclusionFailed", 2, "20206", "low")},
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
		{"row 14: the limit was lowered", at(R, func(f *flight) { f.Retries = 3 }), nil, settings(), lowered},
	} {
		if c.f.Retries == 0 {
			c.f.Retries = 1
		}
		same(t, c.name, sequencer.Elapsed(c.f, c.earlier, c.d, 0.5), c.want)
	}
}

func TestWhatIsInFlightCanBeAbandoned(t *testing.T) {
	for _, p := range outbox.Phases {
		got := sequencer.Abandon(at(p))
		if !p.InFlight() {
			same(t, string(p), got, step{State: outbox.WAITING, Phase: p, Attempt: 1, Fee: "100", Err: got.Err})
			refused(t, got)
			continue
		}
		same(t, string(p), got, step{Events: events{"Abandoned"}, State: outbox.UNRESOLVED, Phase: outbox.PhaseIdle, Then: "end", Attempt: 1, Fee: "100",
			FreeSender: true, BlockSender: true, Code: "abandoned", Message: "abandoned by an operator, whatever the worker may still do"})
	}
}

func TestAnEventInTheWrongPhaseChangesNothingAndSaysSo(t *testing.T) {
	s := outbox.Status{State: "pending", Hash: "0xaa"}
	for name, got := range map[string]step{
		"an answer in DELAY":         sequencer.Dispatched(at(outbox.PhaseDelay), outbox.Answer{Result: outbox.Result{Hash: "0xaa"}}, settings(), 0),
		"an answer in IDLE":          sequencer.Dispatched(at(outbox.PhaseIdle), outbox.Answer{Class: outbox.ClassRetry, Code: "x"}, settings(), 0),
		"a token's state, INCLUSION": sequencer.Asked(at(outbox.PhaseInclusion), s, settings(), 0),
		"a hash's state in DELAY":    sequencer.Polled(at(outbox.PhaseDelay), s, settings(), 0),
		"a delay over, DISPATCHING":  sequencer.Elapsed(at(outbox.PhaseDispatching), nil, settings(), 0),
		"a cancel in REVISION":       sequencer.Elapsed(at(outbox.PhaseWaitingInclusion, cancelling), nil, settings(), 0),
	} {
		if got.Events != nil || got.Then != "" || got.Hash != "" || got.Code != "" || got.State != got.Phase.Transaction() {
			t.Errorf("%s: %+v", name, got)
		}
		refused(t, got)
	}
}

func refused(t *testing.T, s step) {
	t.Helper()
	var illegal *machine.Illegal
	if !errors.As(s.Err, &illegal) {
		t.Errorf("in %s: Err is %v, want *machine.Illegal", s.Phase, s.Err)
	}
}

func BenchmarkDispatched(b *testing.B) {
	f, d := at(outbox.PhaseDispatching), settings()
	a := outbox.Answer{Result: outbox.Result{Done: json.RawMessage(`{}`)}}
	b.ReportAllocs()
	for b.Loop() {
		sequencer.Dispatched(f, a, d, 0.5)
	}
}
