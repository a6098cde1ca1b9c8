package sequencer_test

import (
	"encoding/json"
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/postern-dev/postern/internal/machine"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/sequencer"
)

// S2.5, S2.6: whatever worker, clock and operators do, in whatever order, a life keeps to the tables.
func TestNoLifeLeavesTheTables(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := anyDispatcher(t)
		f := flight{Phase: outbox.PhaseDispatching, Attempt: 1, MaxRetries: rapid.IntRange(0, 4).Draw(t, "max"), Fee: "100", FirstFee: "100"}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			s := anyDecision(t, f, d)
			if s.Err != nil {
				if s.State != f.Phase.Transaction() || s.Phase != f.Phase || s.Then != "" || s.Events != nil || s.Attempt != f.Attempt || s.Retries != f.Retries {
					t.Fatalf("refused, and yet it changes something: %+v", s)
				}
				continue
			}
			keepsToTheTables(t, f, s)
			keepsItsPromises(t, f, d, s)
			if s.Then == sequencer.ThenEnd {
				nothingFollows(t, s, d)
				return
			}
			f.Called = s.Attempt == f.Attempt && (f.Called || slices.Contains(s.Events, sequencer.DispatchTimeout) ||
				slices.Contains(s.Events, sequencer.WorkerLost) && !s.NothingDone)
			f.Attempt, f.Retries, f.Fee, f.Phase = s.Attempt, s.Retries, s.Fee, s.Phase
			if s.KeepHash {
				f.LastHash = s.Hash
			}
			if s.Then == sequencer.ThenBack { // its turn comes again
				f.Phase, f.SenderGone = outbox.PhaseDispatching, false
			}
			f.Cancelling = f.Phase.Transaction() == outbox.RETRY && (f.Cancelling || rapid.Float64Range(0, 1).Draw(t, "cancel") < 0.1)
			f.SenderGone = f.Phase == outbox.PhaseDelay && rapid.Float64Range(0, 1).Draw(t, "give back") < 0.1
		}
	})
}

func anyDispatcher(t *rapid.T) outbox.Dispatcher {
	d := outbox.DefaultDispatcher()
	d.Idempotent = rapid.Bool().Draw(t, "idempotent")
	d.Unknown = rapid.SampledFrom([]outbox.Unknown{outbox.UnknownHold, outbox.UnknownUnresolved}).Draw(t, "unknown")
	d.Replaceable = rapid.Bool().Draw(t, "replaceable")
	d.Retry.OnFailed = rapid.Bool().Draw(t, "on_failed")
	d.Retry.Kind = rapid.SampledFrom([]string{"exponential", "fixed"}).Draw(t, "retry")
	d.Fee.Kind = rapid.SampledFrom([]string{"percent", "step", "none"}).Draw(t, "fee")
	d.Fee.Step = "30"
	d.Inclusion.Confirmations = rapid.IntRange(1, 3).Draw(t, "confirmations")
	return d
}

func anyStatus(t *rapid.T) outbox.Status {
	return outbox.Status{
		State:         rapid.SampledFrom([]outbox.StatusState{"pending", "included", "included", "failed", "unknown", "unreachable", "unsupported"}).Draw(t, "status"),
		Hash:          rapid.SampledFrom([]string{"", "0xaa", "0xbb"}).Draw(t, "hash"),
		BlockHeight:   rapid.SampledFrom([]string{"", "9", "10"}).Draw(t, "height"),
		Confirmations: rapid.IntRange(0, 4).Draw(t, "depth"),
		FailureReason: rapid.SampledFrom([]string{"", "", "low"}).Draw(t, "reason"),
	}
}

func anyAnswer(t *rapid.T) outbox.Answer {
	a := outbox.Answer{
		Class: rapid.SampledFrom([]outbox.Class{"", "", "retry", "retry", "blocked", "ambiguous", "rejected", "odd"}).Draw(t, "class"),
		After: time.Duration(rapid.IntRange(0, 600).Draw(t, "after")) * time.Second,
	}
	a.Unsent = a.Class == outbox.ClassBlocked && rapid.Bool().Draw(t, "unsent")
	a.Told = !a.Unsent && rapid.Bool().Draw(t, "told")
	a.Result.Hash = rapid.SampledFrom([]string{"", "0xaa", "0xbb"}).Draw(t, "hash")
	if rapid.IntRange(0, 4).Draw(t, "done") == 0 {
		a.Result.Done = json.RawMessage(`true`)
	}
	return a
}

// anyDecision mostly asks what the phase calls for, and sometimes something else.
func anyDecision(t *rapid.T, f flight, d outbox.Dispatcher) step {
	f.Since = time.Duration(rapid.IntRange(0, 20000).Draw(t, "since")) * time.Second
	f.NeverHeld = rapid.Bool().Draw(t, "never held")
	f.Unclear.Code = rapid.SampledFrom([]string{"", "", "http_500", "http_502", "http_503", "answer_empty", "http_422"}).Draw(t, "unclear")
	chance := rapid.Float64Range(0, 0.999).Draw(t, "chance")
	sensible := map[outbox.Phase][]string{
		outbox.PhaseDispatching:      {"dispatched", "dispatched", "asked"},
		outbox.PhaseInclusion:        {"polled"},
		outbox.PhaseWaitingInclusion: {"polled"},
		outbox.PhaseRetry:            {"elapsed"},
		outbox.PhaseDelay:            {"elapsed"},
	}
	kinds := sensible[f.Phase]
	if rapid.IntRange(0, 9).Draw(t, "odd") == 0 {
		kinds = []string{"dispatched", "asked", "polled", "elapsed", "abandon"}
	}
	switch rapid.SampledFrom(kinds).Draw(t, "decision") {
	case "dispatched":
		return sequencer.Dispatched(f, anyAnswer(t), d, chance)
	case "asked":
		return sequencer.Asked(f, anyStatus(t), d, chance)
	case "polled":
		return sequencer.Polled(f, anyStatus(t), d, chance)
	case "elapsed":
		return sequencer.Elapsed(f, rapid.SliceOfN(rapid.Custom(anyStatus), 0, 3).Draw(t, "earlier"), d, chance)
	}
	return sequencer.Abandon(f)
}

// keepsToTheTables follows the events of a step along the edges of both tables.
func keepsToTheTables(t *rapid.T, f flight, s step) {
	ends := func(table machine.Table, from string) []string {
		now := []string{from}
		for _, e := range s.Events {
			var next []string
			for _, r := range table.Rules {
				if r.On == string(e) && slices.Contains(now, r.From) {
					next = append(next, r.To)
				}
			}
			now = next
		}
		return now
	}
	if to := ends(sequencer.Transaction, string(f.Phase.Transaction())); !slices.Contains(to, string(s.State)) {
		t.Fatalf("%v lead from %s to %v, not to %s", s.Events, f.Phase.Transaction(), to, s.State)
	}
	if to := ends(sequencer.Queue, string(f.Phase.Queue())); !slices.Contains(to, string(s.Phase.Queue())) {
		t.Fatalf("%v lead from %s to %v, not to %s", s.Events, f.Phase.Queue(), to, s.Phase.Queue())
	}
}

func keepsItsPromises(t *rapid.T, f flight, d outbox.Dispatcher, s step) {
	check := func(ok bool, promise string) {
		if !ok {
			t.Fatalf("%s: %+v became %+v", promise, f, s)
		}
	}
	check(len(s.Events) > 0, "a step has events")
	check(s.State.Terminal() == (s.Then == sequencer.ThenEnd), "a terminal state ends, and nothing else does")
	check(s.Phase.InFlight() == (s.Then == sequencer.ThenCall || s.Then == sequencer.ThenAsk || s.Then == sequencer.ThenWait || s.Then == sequencer.ThenHold), "what is in flight is called, asked about, waited for or held")
	check(s.Then != sequencer.ThenHold || d.Unknown == outbox.UnknownHold && !f.NeverHeld, "what is held may be held")
	check(s.State != outbox.UNRESOLVED || s.Class == outbox.ClassAmbiguous || slices.Contains(s.Events, sequencer.Abandoned), "UNRESOLVED is what nobody knows")
	check(!s.Phase.InFlight() || s.State == s.Phase.Transaction(), "state follows phase (S2.3)")
	check((s.Hook == outbox.OnSuccess) == (s.State == outbox.DONE), "on-success after DONE only")
	check((s.Hook == outbox.OnFailure) == (s.State == outbox.FAILED), "on-failure after FAILED only")
	check(s.FreeSender == (!s.Phase.InFlight() && !s.PinSender || s.Then == sequencer.ThenHold), "the sender is free when nothing is in flight, unless pinned; what is held has none")
	check(s.Then != sequencer.ThenBack || s.Attempt != f.Attempt || f.SenderGone || s.PinSender || s.NothingDone && !f.Called,
		"a token that may have had an effect stays with its sender")
	check(s.KeepHash == slices.Contains(s.Events, sequencer.Accepted), "a hash is kept when it was accepted")

	rises := slices.Contains(s.Events, sequencer.DelayElapsed) && (s.State == outbox.DISPATCHING || s.State == outbox.WAITING)
	check(s.Attempt == f.Attempt+count(rises), "attempts rise in rows 16 and 17 only")
	check(s.Retries == f.Retries || s.Retries == f.Retries+1 && (s.State == outbox.RETRY || slices.Contains(s.Events, sequencer.Unreadable)), "a retry is counted on the way to RETRY, and for an answer that could not be read")
	check(s.Retries <= f.MaxRetries, "retries never exceed max")
	check(s.Attempt <= s.Retries+1, "no attempt without a retry before it")

	check(s.Delay >= 0, "no delay is negative")
	was, is := number(t, f.Fee), number(t, s.Fee)
	check(is.Cmp(was) >= 0 && is.Cmp(big.NewInt(200)) <= 0, "a fee never falls, nor passes its cap")
	if s.State == outbox.FAILED || s.State == outbox.RETRY {
		check(!slices.Contains(s.Events, sequencer.StatusUnreachable), "not being able to ask is no failure (S2.11)")
	}
	if s.State == outbox.CANCELLED {
		check(f.Cancelling, "only what somebody cancels ends CANCELLED")
	}
}

// nothingFollows asks everything of a queue whose transaction has ended: nothing can leave (S2.6).
func nothingFollows(t *rapid.T, s step, d outbox.Dispatcher) {
	over := flight{Phase: s.Phase, Attempt: s.Attempt, Retries: s.Retries, MaxRetries: 9}
	for i, got := range []step{
		sequencer.Dispatched(over, anyAnswer(t), d, 0), sequencer.Asked(over, anyStatus(t), d, 0),
		sequencer.Polled(over, anyStatus(t), d, 0), sequencer.Elapsed(over, nil, d, 0), sequencer.Abandon(over),
	} {
		if got.Err == nil {
			t.Fatalf("decision %d goes on after %s: %+v", i, s.State, got)
		}
	}
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

func number(t *rapid.T, s string) *big.Int {
	n, ok := new(big.Int).SetString(s, 10)
	if !ok {
		t.Fatalf("fee %q is no number", s)
	}
	return n
}
