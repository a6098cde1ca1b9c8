package sequencer_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/sequencer"
)

// finished is the status of what a worker without blocks has done.
func finished(hash string) outbox.Status {
	return outbox.Status{State: "included", Hash: hash, Done: json.RawMessage("true")}
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
	doneWith := func(hash string) step {
		return step{
			Events: events{"Completed"}, State: outbox.DONE, Phase: outbox.PhaseIdle, Then: "end", Attempt: 1, Fee: "100",
			Answered: true, Hook: outbox.OnSuccess, FreeSender: true, Hash: hash,
		}
	}
	unreachable := func(delay time.Duration) step {
		return still(step{Events: events{"StatusUnreachable"}, Then: "ask", Delay: delay, Class: outbox.ClassAmbiguous, Code: "status_unreachable", Message: "refused"})
	}
	const lost = "dispatch outcome unknown: the worker has no /status to be asked, and its dispatcher is not idempotent"
	held := func(s step) step {
		s.Events, s.Then, s.FreeSender, s.PinSender, s.Class, s.Code = events{"Unresolvable"}, "hold", true, true, outbox.ClassAmbiguous, "outcome_unknown"
		return still(s)
	}
	unresolved := func(s step) step {
		s.Events, s.State, s.Phase, s.Then, s.Attempt, s.Fee = events{"Unresolvable"}, outbox.UNRESOLVED, outbox.PhaseIdle, "end", 1, "100"
		s.Answered, s.FreeSender, s.Class, s.Code = true, true, outbox.ClassAmbiguous, "outcome_unknown"
		return s
	}
	away := func(s step) step {
		s.Events, s.State, s.Phase, s.Then, s.Attempt, s.Fee = events{"WorkerLost"}, outbox.WAITING, outbox.PhaseIdle, "back", 1, "100"
		s.Answered, s.PinSender, s.Class = true, true, outbox.ClassBlocked
		s.Blocks, s.Delay = outbox.ScopeQueue, max(s.Delay, time.Second)
		return s
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
		{"done", at(D), finished(""), settings(), doneWith("")},
		{"done, with a hash", at(D), finished("0xaa"), settings(), doneWith("0xaa")},
		{"failed", at(D), outbox.Status{State: "failed", Hash: "0xaa", FailureReason: "bad proof"}, settings(), failed},
		{"included, but failed", at(D), outbox.Status{State: "included", Hash: "0xaa", FailureReason: "bad proof"}, settings(), failed},
		{"failed, and no retry left", at(D, retries(2)), outbox.Status{State: "failed"}, settings(),
			step{Events: events{"DispatchError"}, State: outbox.FAILED, Phase: outbox.PhaseIdle, Then: "end", Attempt: 1, Retries: 2, Fee: "100", Answered: true,
				Hook: outbox.OnFailure, FreeSender: true, Class: outbox.ClassRetry, Code: "20206", Message: "the worker says that it failed, and names no reason"}},
		{"a 502 that it never saw, asked about for 20 s",
			at(D, since(20*time.Second), answered("http_502", "HTTP 502"),
				func(f *flight) { f.Blocked = 25 * time.Second }),
			outbox.Status{State: "unknown"}, settings(),
			away(step{Code: "http_502", Message: "HTTP 502", Delay: 5 * time.Second})},
		{"never saw the token", at(D), outbox.Status{State: "unknown"}, settings(), still(step{Events: events{"StatusUnknown"}, Then: "call"})},
		{"never saw the token, which was sent again", at(D, again), outbox.Status{State: "unknown"}, settings(),
			away(step{Code: "in_vain", Message: "the call was made again, and came to nothing again"})},
		{"never saw the token after a 500 for a minute", at(D, again, answered("http_500", "HTTP 500"),
			func(f *flight) { f.Blocked = time.Minute }), outbox.Status{State: "unknown"}, settings(),
			away(step{Code: "http_500", Message: "HTTP 500", Delay: 30 * time.Second})},
		{"sent again in vain, no /status, idempotent", at(D, again, answered("http_504", "HTTP 504")),
			outbox.Status{State: "unsupported"}, settings(idempotent),
			away(step{Code: "http_504", Message: "HTTP 504"})},
		{"sent again in vain, no /status", at(D, again), outbox.Status{State: "unsupported"}, settings(),
			held(step{Message: lost})},
		{"no /status, idempotent", at(D), outbox.Status{State: "unsupported"}, settings(idempotent), still(step{Events: events{"StatusUnknown"}, Then: "call"})},
		{"no /status", at(D), outbox.Status{State: "unsupported"}, settings(), held(step{Message: lost})},
		{"no /status, and its pool blocks senders", at(D, blames), outbox.Status{State: "unsupported"}, settings(), held(step{Message: lost, BlameSender: true})},
		{"no /status, after an answer", at(D, answered("http_500", "HTTP 500")), outbox.Status{State: "unsupported"}, settings(),
			held(step{Message: "dispatch outcome unknown: HTTP 500; the worker has no /status to be asked, and its dispatcher is not idempotent"})},
		{"no /status, and the dispatcher wants an end", at(D), outbox.Status{State: "unsupported"}, settings(ends), unresolved(step{Message: lost})},
		{"no /status, and what it belongs to has an end of its own", at(D, neverHeld), outbox.Status{State: "unsupported"}, settings(), unresolved(step{Message: lost})},
		{"503, and the worker never saw it", at(D, answered("http_503", "HTTP 503")), outbox.Status{State: "unknown"}, settings(), away(step{Code: "http_503", Message: "HTTP 503"})},
		{"502, and no /status", at(D, answered("http_502", "HTTP 502")), outbox.Status{State: "unsupported"}, settings(), away(step{Code: "http_502", Message: "HTTP 502"})},
		{"502, and no /status, idempotent", at(D, answered("http_502", "HTTP 502")), outbox.Status{State: "unsupported"}, settings(idempotent), away(step{Code: "http_502", Message: "HTTP 502"})},
		{"502, and the worker has it", at(D, answered("http_502", "HTTP 502")), outbox.Status{State: "pending", Hash: "0xaa"}, settings(), accepted},
		{"502, and nobody answers", at(D, answered("http_502", "HTTP 502")), outbox.Status{State: "unreachable", Message: "refused"}, settings(), unreachable(time.Second)},
		{"500, and the worker never saw it", at(D, answered("http_500", "HTTP 500")), outbox.Status{State: "unknown"}, settings(), still(step{Events: events{"StatusUnknown"}, Then: "call"})},
		{"500 for as long as it takes, no /status, idempotent",
			at(D, retries(2), answered("http_500", "HTTP 500")), outbox.Status{State: "unsupported"},
			settings(idempotent),
			still(step{Events: events{"StatusUnknown"}, Then: "call", Retries: 2})},
		{"unreadable, and the worker never saw it", at(D, answered("answer_empty", "neither")), outbox.Status{State: "unknown"}, settings(),
			still(step{Events: events{"Unreadable"}, Then: "call", Retries: 1, Class: outbox.ClassAmbiguous, Code: "answer_empty", Message: "neither"})},
		{"unreadable, no /status, idempotent", at(D, answered("answer_invalid", "no JSON")), outbox.Status{State: "unsupported"}, settings(idempotent),
			still(step{Events: events{"Unreadable"}, Then: "call", Retries: 1, Class: outbox.ClassAmbiguous, Code: "answer_invalid", Message: "no JSON"})},
		{"unreadable, and the retries are used up", at(D, retries(2), answered("answer_empty", "neither")), outbox.Status{State: "unknown"}, settings(),
			held(step{Retries: 2, Message: "dispatch outcome unknown: neither; the retries are used up"})},
		{"unreadable, and the retries are used up, with an end", at(D, retries(2), answered("http_422", "HTTP 422")), outbox.Status{State: "unknown"}, settings(ends),
			unresolved(step{Retries: 2, Message: "dispatch outcome unknown: HTTP 422; the retries are used up"})},
		{"ambiguous by class under a 503, no /status", at(D, doubted("http_503", "perhaps")),
			outbox.Status{State: "unsupported"}, settings(),
			held(step{Message: "dispatch outcome unknown: perhaps; " +
				"the worker has no /status to be asked, and its dispatcher is not idempotent"})},
		{"ambiguous by class under a 400, and the retries are used up",
			at(D, retries(2), doubted("http_400", "perhaps")),
			outbox.Status{State: "unknown"}, settings(),
			still(step{Events: events{"StatusUnknown"}, Then: "call", Retries: 2})},
		{"ambiguous by class, sent again in vain", at(D, again, doubted("answer_invalid", "perhaps")),
			outbox.Status{State: "unknown"}, settings(),
			away(step{Code: "answer_invalid", Message: "perhaps", Doubted: true})},
		{"unreachable at once", at(D), outbox.Status{State: "unreachable", Message: "refused"}, settings(), unreachable(time.Second)},
		{"unreachable after 8 s", at(D, since(8*time.Second)), outbox.Status{State: "unreachable", Message: "refused"}, settings(), unreachable(8 * time.Second)},
		{"unreachable for an hour", at(D, since(time.Hour)), outbox.Status{State: "unreachable", Message: "refused"}, settings(), unreachable(30 * time.Second)},
		{"pending without hash", at(D), outbox.Status{State: "pending"}, settings(), still(step{Events: events{"StatusUnreachable"}, Then: "ask", Delay: time.Second,
			Class: outbox.ClassAmbiguous, Message: "the worker knows the token, but names no hash to watch"})},
	} {
		same(t, c.name, sequencer.Asked(c.f, c.s, c.d, 0.5), c.want)
	}
}

func TestWhatIsHeldGoesOnByAnOperatorsWord(t *testing.T) {
	D := at(outbox.PhaseDispatching, retries(1))
	same(t, "it was done", sequencer.Found(D, true), step{Events: events{"FoundDone"}, State: outbox.DONE, Phase: outbox.PhaseIdle, Then: "end", Attempt: 1, Retries: 1, Fee: "100",
		FreeSender: true, Hook: outbox.OnSuccess, Code: "found_by_operator", Message: "an operator found that it was done"})
	same(t, "it was not", sequencer.Found(D, false), step{Events: events{"FoundNotDone"}, State: outbox.WAITING, Phase: outbox.PhaseIdle, Then: "back", Attempt: 1, Retries: 1, Fee: "100",
		PinSender: true, Code: "found_by_operator", Message: "an operator found that it was not done"})
	for _, p := range outbox.Phases {
		if p != outbox.PhaseDispatching {
			refused(t, sequencer.Found(at(p), true))
			refused(t, sequencer.Found(at(p), false))
		}
	}
}
