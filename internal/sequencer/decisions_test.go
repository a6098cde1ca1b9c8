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
func ends(d *outbox.Dispatcher)           { d.Unknown = outbox.UnknownUnresolved }
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
func resent(f *flight)                    { f.Resent = true }
func called(f *flight)                    { f.Called = true }
func again(f *flight)                     { f.Again = true }
func blames(f *flight)                    { f.BlamesSender = true }
func neverHeld(f *flight)                 { f.NeverHeld = true }

// answered is a call whose answer told nothing.
func answered(code, why string) func(*flight) {
	return func(f *flight) { f.Unclear = sequencer.Unclear{Code: code, Why: why} }
}

// doubted is a call whose worker says itself that it may have had an effect, with a code of its own.
func doubted(code, why string) func(*flight) {
	return func(f *flight) { f.Unclear = sequencer.Unclear{Code: code, Why: why, Told: true} }
}

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
		{"row 5: the worker is away", at(D, retries(1)), outbox.Answer{Class: outbox.ClassBlocked, Code: "502", Message: "away", Told: true},
			step{Events: events{"WorkerLost"}, State: outbox.WAITING, Phase: outbox.PhaseIdle, Then: "back", Attempt: 1, Retries: 1, Fee: "100",
				Answered: true, NothingDone: true, FreeSender: true,
				Delay: time.Second, Blocks: outbox.ScopeQueue, Class: outbox.ClassBlocked, Code: "502", Message: "away"}},
		{"row 5: the worker says until when", at(D), outbox.Answer{Class: outbox.ClassBlocked, Until: time.Unix(9, 0), Told: true},
			step{Events: events{"WorkerLost"}, State: outbox.WAITING, Phase: outbox.PhaseIdle, Then: "back", Attempt: 1, Fee: "100",
				Answered: true, NothingDone: true, FreeSender: true,
				Delay: time.Second, Blocks: outbox.ScopeQueue, Until: time.Unix(9, 0), Class: outbox.ClassBlocked}},
		{"row 5: nothing was written", at(D),
			outbox.Answer{Class: outbox.ClassBlocked, Scope: outbox.ScopeWorker, Unsent: true},
			step{Events: events{"WorkerLost"}, State: outbox.WAITING, Phase: outbox.PhaseIdle, Then: "back", Attempt: 1, Fee: "100",
				Answered: true, NothingDone: true, FreeSender: true,
				Delay: time.Second, Blocks: outbox.ScopeWorker, Class: outbox.ClassBlocked}},
		{"row 5: blocked for five seconds", at(D, func(f *flight) { f.Blocked = 5 * time.Second }),
			outbox.Answer{Class: outbox.ClassBlocked, Scope: outbox.ScopeSender, Told: true},
			step{Events: events{"WorkerLost"}, State: outbox.WAITING, Phase: outbox.PhaseIdle,
				Then: "back", Attempt: 1, Fee: "100",
				Answered: true, NothingDone: true, FreeSender: true,
				Delay: 5 * time.Second, Blocks: outbox.ScopeSender, Class: outbox.ClassBlocked}},
		{"row 5: pinned, since nobody knows that nothing was done", at(D), outbox.Answer{Class: outbox.ClassBlocked, Code: "http_503"},
			step{Events: events{"WorkerLost"}, State: outbox.WAITING, Phase: outbox.PhaseIdle, Then: "back", Attempt: 1, Fee: "100",
				Answered: true, PinSender: true,
				Delay: time.Second, Blocks: outbox.ScopeQueue, Class: outbox.ClassBlocked, Code: "http_503"}},
		{"row 5: pinned by an earlier call of this token", at(D, called), outbox.Answer{Class: outbox.ClassBlocked, Unsent: true},
			step{Events: events{"WorkerLost"}, State: outbox.WAITING, Phase: outbox.PhaseIdle, Then: "back", Attempt: 1, Fee: "100",
				Answered: true, NothingDone: true, PinSender: true,
				Delay: time.Second, Blocks: outbox.ScopeQueue, Class: outbox.ClassBlocked}},
		{"row 5: pinned by its token in a pool that blocks senders, too", at(D, blames), outbox.Answer{Class: outbox.ClassBlocked},
			step{Events: events{"WorkerLost"}, State: outbox.WAITING, Phase: outbox.PhaseIdle, Then: "back", Attempt: 1, Fee: "100",
				Answered: true, PinSender: true,
				Delay: time.Second, Blocks: outbox.ScopeQueue, Class: outbox.ClassBlocked}},
		{"row 5: pinned by an earlier hash", at(D, func(f *flight) { f.LastHash = "0x1" }), outbox.Answer{Class: outbox.ClassBlocked},
			step{Events: events{"WorkerLost"}, State: outbox.WAITING, Phase: outbox.PhaseIdle, Then: "back", Attempt: 1, Fee: "100",
				Answered: true, PinSender: true,
				Delay: time.Second, Blocks: outbox.ScopeQueue, Class: outbox.ClassBlocked}},
		{"row 5: pinned by an open outcome", at(D, func(f *flight) { f.EarlierOpen = true }), outbox.Answer{Class: outbox.ClassBlocked},
			step{Events: events{"WorkerLost"}, State: outbox.WAITING, Phase: outbox.PhaseIdle, Then: "back", Attempt: 1, Fee: "100",
				Answered: true, PinSender: true,
				Delay: time.Second, Blocks: outbox.ScopeQueue, Class: outbox.ClassBlocked}},
		{"row 5: pinned by the client", at(D, func(f *flight) { f.PinnedSender = true }), outbox.Answer{Class: outbox.ClassBlocked},
			step{Events: events{"WorkerLost"}, State: outbox.WAITING, Phase: outbox.PhaseIdle, Then: "back", Attempt: 1, Fee: "100",
				Answered: true, PinSender: true,
				Delay: time.Second, Blocks: outbox.ScopeQueue, Class: outbox.ClassBlocked}},
		{"row 5: not pinned in a pool that blocks senders", at(D, blames, func(f *flight) { f.LastHash, f.EarlierOpen = "0x1", true }), outbox.Answer{Class: outbox.ClassBlocked, Told: true},
			step{Events: events{"WorkerLost"}, State: outbox.WAITING, Phase: outbox.PhaseIdle, Then: "back", Attempt: 1, Fee: "100",
				Answered: true, NothingDone: true, FreeSender: true,
				Delay: time.Second, Blocks: outbox.ScopeQueue, Class: outbox.ClassBlocked}},
		{"row 6: rejected, in a pool that blocks senders", at(D, blames), outbox.Answer{Class: outbox.ClassRejected, Code: "500"},
			step{Events: events{"Rejected"}, State: outbox.FAILED, Phase: outbox.PhaseIdle, Then: "end", Attempt: 1, Fee: "100", Hook: outbox.OnFailure,
				Answered: true, FreeSender: true, BlameSender: true, Class: outbox.ClassRejected, Code: "500"}},
		{"rows 7 and 14: its pool blocks the sender and takes it back", at(D, blames), outbox.Answer{Class: outbox.ClassRetry, Code: "20203"},
			step{Events: events{"DispatchError", "RetryStarted"}, State: outbox.RETRY, Phase: outbox.PhaseDelay, Then: "wait", Attempt: 1,
				Retries: 1, Fee: "100", Delay: 5 * time.Second, Answered: true, FreeSender: true, BlameSender: true, Class: outbox.ClassRetry, Code: "20203"}},
		{"row 6: rejected", at(D), outbox.Answer{Class: outbox.ClassRejected, Code: "500", Message: "no account"},
			step{Events: events{"Rejected"}, State: outbox.FAILED, Phase: outbox.PhaseIdle, Then: "end", Attempt: 1, Fee: "100", Hook: outbox.OnFailure,
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
		{"row 7: the worker's own word, after a call that may have had an effect", at(D, called), outbox.Answer{Class: outbox.ClassRetry, Code: "20203", Told: true},
			step{Events: events{"DispatchError", "RetryStarted"}, State: outbox.RETRY, Phase: outbox.PhaseDelay, Then: "wait", Attempt: 1,
				Retries: 1, Fee: "100", Delay: 5 * time.Second, Answered: true, Class: outbox.ClassRetry, Code: "20203"}},
		{"row 8: not its own word, after a call that may have had an effect", at(D, called), outbox.Answer{Class: outbox.ClassRetry, Code: "http_425", After: time.Minute},
			step{Events: events{"DispatchTimeout"}, State: outbox.DISPATCHING, Phase: D, Then: "ask", Attempt: 1, Fee: "100", Delay: time.Minute,
				Class: outbox.ClassAmbiguous, Code: "http_425"}},
		{"row 7: the retries are used up", at(D, retries(2)), outbox.Answer{Class: outbox.ClassRetry, Code: "20203"},
			step{Events: events{"DispatchError"}, State: outbox.FAILED, Phase: outbox.PhaseIdle, Then: "end", Attempt: 1, Retries: 2, Fee: "100",
				Answered: true, Hook: outbox.OnFailure, FreeSender: true, Class: outbox.ClassRetry, Code: "20203"}},
		{"row 8: nobody knows; asked at once", at(D, since(10*time.Minute)), outbox.Answer{Class: outbox.ClassAmbiguous, Code: "timeout", Elapsed: 10 * time.Minute},
			step{Events: events{"DispatchTimeout"}, State: outbox.DISPATCHING, Phase: D, Then: "ask", Attempt: 1, Fee: "100",
				Class: outbox.ClassAmbiguous, Code: "timeout"}},
		{"row 8: sent before, and asked at once: what would follow waits its turn",
			at(D, since(8*time.Second), resent), outbox.Answer{Class: outbox.ClassAmbiguous, Elapsed: time.Second},
			step{Events: events{"DispatchTimeout"}, State: outbox.DISPATCHING, Phase: D, Then: "ask", Attempt: 1,
				Fee: "100", Class: outbox.ClassAmbiguous}},
		{"row 8: not in a tight loop when the same attempt was sent before, and cannot be read",
			at(D, since(8*time.Second), resent),
			outbox.Answer{Class: outbox.ClassAmbiguous, Code: "answer_empty", Elapsed: time.Second},
			step{Events: events{"DispatchTimeout"}, State: outbox.DISPATCHING, Phase: D, Then: "ask",
				Delay: 7 * time.Second, Attempt: 1, Fee: "100", Class: outbox.ClassAmbiguous, Code: "answer_empty"}},
		{"row 8: an answer that says nothing", at(D), outbox.Answer{},
			step{Events: events{"DispatchTimeout"}, State: outbox.DISPATCHING, Phase: D, Then: "ask", Attempt: 1, Fee: "100",
				Class: outbox.ClassAmbiguous, Message: "the worker's answer has neither hash, done nor error"}},
		{"row 8: a class that we do not know", at(D), outbox.Answer{Class: "odd", Result: sent},
			step{Events: events{"DispatchTimeout"}, State: outbox.DISPATCHING, Phase: D, Then: "ask", Attempt: 1, Fee: "100", Class: "odd", Hash: "0xaa"}},
	} {
		same(t, c.name, sequencer.Dispatched(c.f, c.a, settings(), 0.5), c.want)
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
