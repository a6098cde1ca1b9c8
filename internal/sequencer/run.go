package sequencer

import (
	"cmp"
	"time"

	"github.com/postern-dev/postern/internal/machine"
	"github.com/postern-dev/postern/internal/outbox"
)

// run is one decision while it is made: the facts, and the step so far.
type run struct {
	Flight
	settings  outbox.Dispatcher
	earlier   []outbox.Status // the answers about earlier hashes and tokens
	after     time.Duration   // least delay that the worker named
	askIn     time.Duration   // for ask_status
	chance    float64
	untouched bool // certain: the call that is decided about had no effect
	final     bool // it failed, and its worker says that to send it again would change nothing
	blocks    outbox.Scope
	step      Step
}

// begin makes a run whose step changes nothing yet.
func begin(f Flight, d outbox.Dispatcher, chance float64) *run {
	return &run{Flight: f, settings: d, chance: chance, step: stay(f)}
}

// stay is the step that changes nothing.
func stay(f Flight) Step {
	return Step{State: f.Phase.Transaction(), Phase: f.Phase, Attempt: f.Attempt, Retries: f.Retries, Fee: f.Fee}
}

// on takes one event through both tables: rules first, then the effects, those of the transaction
// before those of its queue. An event that either table does not know leaves a step that changes
// nothing and has Err; events after it are ignored.
func (r *run) on(e Event) *run {
	if r.step.Err != nil {
		return r
	}
	guard := func(name string) bool { return guards[name](r) }
	queue, err := Queue.Next(string(r.step.Phase.Queue()), string(e), guard)
	var transaction machine.Rule
	if err == nil {
		transaction, err = Transaction.Next(string(r.step.State), string(e), guard)
	}
	if err != nil {
		r.step = stay(r.Flight)
		r.step.Err = err
		return r
	}
	r.step.Events = append(r.step.Events, e)
	for _, name := range transaction.Do {
		effects[name](r)
	}
	for _, name := range queue.Do {
		effects[name](r)
	}
	r.step.State = outbox.State(transaction.To)
	r.step.Phase = phaseOf(outbox.QueueState(queue.To))
	return r
}

// because says what went wrong, or what keeps it waiting.
func (r *run) because(class outbox.Class, code, message string) *run {
	if r.step.Err == nil {
		r.step.Class, r.step.Code, r.step.Message = class, code, message
	}
	return r
}

// retried goes on to the delay in the same commit where the last event led to RETRY (row 14).
func (r *run) retried() *run {
	if r.step.Err == nil && r.step.Phase == outbox.PhaseRetry {
		return r.on(RetryStarted)
	}
	return r
}

// phaseOf is the phase that a queue state stands for; FREE is IDLE, since only the store knows whether
// something waits behind the head.
func phaseOf(s outbox.QueueState) outbox.Phase {
	for _, p := range outbox.Phases {
		if p.Queue() == s {
			return p
		}
	}
	return outbox.PhaseIdle
}

// guards binds the names in When.
var guards = map[string]func(*run) bool{
	"type_known_and_queue_open": answeredBySQL, // ingest refuses, or stores
	"head_may_go":               answeredBySQL, // claim returns the queue, or does not
	"retries_left":              func(r *run) bool { return r.Retries < r.MaxRetries },
	"retries_within_max":        func(r *run) bool { return r.step.Retries <= r.MaxRetries },
	"failed_may_retry":          (*run).failedMayRetry,
	// S2.11 says that the transaction is held *instead* of a retry: where no retry would follow, row 12
	// ends it as any other.
	"held_for_operator": func(r *run) bool { return r.Retries < r.MaxRetries && !r.settings.Replaceable },
	"unknown_is_held":   func(r *run) bool { return !r.NeverHeld && r.settings.Unknown != outbox.UnknownUnresolved },
	"in_delay":          func(r *run) bool { return r.step.Phase == outbox.PhaseDelay },
	"earlier_included":  func(r *run) bool { return r.includedEarlier() != nil },
	"earlier_open":      func(r *run) bool { return r.earlierUnsure(!r.settings.Replaceable) },
	"earlier_may_land":  func(r *run) bool { return r.earlierUnsure(true) },
	"limit_lowered":     func(r *run) bool { return r.Retries > r.MaxRetries },
	"sender_given_back": func(r *run) bool { return r.SenderGone },
}

// failedMayRetry says whether what failed in its block is sent again.
func (r *run) failedMayRetry() bool {
	return r.Retries < r.MaxRetries && r.settings.Retry.OnFailed && !r.final
}

// answeredBySQL binds guards that a statement has answered before the event exists.
func answeredBySQL(*run) bool { return true }

// effects binds the names in Do.
var effects = map[string]func(*run){
	"take_position":  doneBySQL,
	"mark_cancelled": doneBySQL,
	"keep_attempt":   func(r *run) { r.step.Answered = true },
	"keep_hash":      func(r *run) { r.step.KeepHash = true },
	"count_retry":    func(r *run) { r.step.Retries++ },
	"next_attempt":   func(r *run) { r.step.Attempt++; r.step.Fee = Fee(r.settings.Fee, r.FirstFee, r.Fee) },
	"on_success":     func(r *run) { r.step.Hook = outbox.OnSuccess },
	"on_failure":     func(r *run) { r.step.Hook = outbox.OnFailure },

	"call_worker": func(r *run) { r.then(ThenCall, 0) },
	"ask_status":  func(r *run) { r.then(ThenAsk, r.askIn) },
	"ask_later":   func(r *run) { r.then(ThenAsk, patience(r.Since)) },
	"poll":        func(r *run) { r.then(ThenWait, time.Duration(r.settings.Inclusion.PollEvery)) },
	"wait_to_ask": func(r *run) { r.then(ThenWait, patience(r.Since)) },
	"wait_for_retry": func(r *run) {
		r.then(ThenWait, RetryDelay(r.settings.Backoff(), r.step.Retries, r.chance, r.after))
	},
	"release_sender": func(r *run) { r.then(ThenEnd, 0); r.step.FreeSender = true },
	"block_sender":   func(r *run) { r.step.BlockSender = true },
	"blame_sender": func(r *run) {
		r.step.BlameSender = r.BlamesSender
		r.step.FreeSender = r.step.FreeSender || r.BlamesSender
	},
	"leave_alone":   func(r *run) { r.step.Blocks = cmp.Or(r.blocks, outbox.ScopeQueue) },
	"stand_in_lane": (*run).standInLane,
	"hold":          (*run).hold,
}

// doneBySQL binds effects that the statement itself has, because no step stands between.
func doneBySQL(*run) {}

func (r *run) then(t Then, delay time.Duration) { r.step.Then, r.step.Delay = t, delay }

// standInLane gives the queue back. The sender is free for other transactions; whether another may take this one
// is what PinSender says (S2.9). Only the same one may
//
//   - if the client asked for it;
//   - if it was called for this token, now or before, unless it is certain that nothing was done: a token is
//     recognised by the worker that has seen it, which another sender's need not be;
//   - if what an earlier attempt left behind lies under its nonce; but a pool that blocks senders takes another
//     for the next attempt all the same (S1.13), since that has another token.
func (r *run) standInLane() {
	delay := time.Duration(0)
	if r.step.Blocks != "" { // less the time for which it was asked what came of the call
		delay = max(time.Second, patience(r.Blocked)-r.Since)
	}
	r.then(ThenBack, delay)
	token := r.step.Attempt == r.Attempt && (r.Called || !r.untouched)
	nonce := !r.BlamesSender && (r.EarlierOpen || r.LastHash != "")
	r.step.PinSender = !r.SenderGone && (r.PinnedSender || token || nonce)
	r.step.FreeSender = !r.step.PinSender
}

// hold gives the sender back and keeps the transaction for it: an operator who finds that nothing was done has the
// same token sent again, which another sender's worker need not know.
func (r *run) hold() {
	r.then(ThenHold, 0)
	r.step.FreeSender, r.step.PinSender = true, true
}

// patience is how long to wait before a question that got no answer is asked again, or what was blocked is tried again:
// as long as that has been going on already, which doubles, from 1 s to 30 s.
func patience(since time.Duration) time.Duration {
	return min(max(since, time.Second), 30*time.Second)
}
