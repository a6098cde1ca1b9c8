package sequencer

import (
	"time"

	"github.com/postern-dev/postern/internal/outbox"
)

// Flight is what a decision may know of the transaction in flight.
type Flight struct {
	Phase        outbox.Phase
	Attempt      int           // 1 for the first; rises in rows 16 and 17 only
	Retries      int           // consumed so far (n)
	MaxRetries   int           // max, resolved by the caller (S2.9)
	Fee          string        // of this attempt, digits, "" if there is none yet
	FirstFee     string        // of the first attempt, digits
	Since        time.Duration // time in this phase: since dispatch, or since the hash was accepted
	Blocked      time.Duration // since it was blocked first, and has not got through; 0 if it was not
	Cancelling   bool          // somebody asked to cancel it while in RETRY (row 19)
	LastHash     string        // hash of the last accepted attempt, "" if none
	EarlierOpen  bool          // an earlier attempt has a hash or an unknown outcome
	PinnedSender bool          // the client asked for this sender
	Called       bool          // this attempt went out before, and may have had an effect: its token is this sender's
	Resent       bool          // this attempt was sent before under this lease, and the worker never saw it
	Again        bool          // its token went out more than once, or as the probe of a gate: more waits its turn
	SenderGone   bool          // its sender was given back during the delay (row 17)
	BlamesSender bool          // its pool blocks a sender after a failure, and takes another (S1.13)
	NeverHeld    bool          // its maker has an end of its own for an unknown outcome (S2.10)
	Unclear      Unclear       // the answer to the call whose outcome is asked about
}

// Unclear is an answer to a call that does not tell its outcome; empty if the end of the call was not seen.
type Unclear struct {
	Code  string
	Why   string    // the same as a sentence
	Told  bool      // the worker itself says that the call may have had an effect, whatever code it says beside
	Until time.Time // the worker wants to be left alone until then, zero if it names no moment
}

// away says whether the answer is that of a proxy without a worker behind it, or of a worker that has no time.
func (u Unclear) away() bool { return !u.Told && (u.Code == "http_502" || u.Code == "http_503") }

// unreadable says whether the answer came whole and says nothing, so that the next one is likely to say nothing either:
// a 2xx that is none of the contract, or a refusal of this request that does not say what it means.
func (u Unclear) unreadable() bool {
	if u.Told {
		return false
	}
	switch u.Code {
	case "answer_empty", "answer_invalid", "answer_too_large",
		"http_400", "http_408", "http_413", "http_414", "http_415", "http_422", "http_425", "http_431":
		return true
	}
	return false
}

// Mute says whether an answer came whole and says nothing: the core makes such a call again as often as the
// retries of its dispatcher allow, and gives it up then.
func Mute(a outbox.Answer) bool { return Unclear{Code: a.Code, Told: a.Told}.unreadable() }

// Then says what follows the commit of a step.
type Then string

const (
	ThenEnd  Then = "end"  // terminal: hand out the next of the queue, or give the queue back
	ThenCall Then = "call" // dispatch now: phase DISPATCHING, the commit was the intent
	ThenAsk  Then = "ask"  // ask /status by token after Delay: outcome unknown (S2.10)
	ThenWait Then = "wait" // no node holds it; its timer wakes it after Delay
	ThenBack Then = "back" // WAITING again: the queue stands in its lane (rows 5 and 17)
	ThenHold Then = "hold" // unknown, and it cannot be asked: a mark holds it for an operator (S2.10)
)

// Step is one decision, stored in one commit.
type Step struct {
	Events      []Event      // in order, as S2.5 names them
	State       outbox.State // of the transaction afterwards
	Phase       outbox.Phase // of the queue afterwards (IDLE stands for FREE: the store knows what is next)
	Then        Then
	Attempt     int
	Retries     int
	Fee         string        // of the attempt that follows, or of this one
	Delay       time.Duration // before the timer, for ThenWait and ThenAsk; before the next try of what is blocked
	Answered    bool          // the attempt ended here: keep a row of it unless the outcome does
	NothingDone bool          // certain: the call that this step is about had no effect
	Doubted     bool          // the worker itself says that the call may have had an effect
	KeepHash    bool          // accepted: keep hash, nonce and data with the attempt
	Hook        outbox.Hook   // to be delivered after the end, "" for none
	FreeSender  bool          // the sender is released
	PinSender   bool          // row 5, or held: only the same sender may take it again (S2.9)
	BlockSender bool          // abandoned: the sender stays blocked until somebody unblocks it
	BlameSender bool          // its pool blocks the sender for a while; a retry takes another (S1.13)
	Blocks      outbox.Scope  // row 5: queue, sender or worker, for Delay or longer
	Until       time.Time     // with Blocks: not before this moment, zero if none was named
	Hash        string        // the one that this step is about, "" if none
	Class       outbox.Class  // of what went wrong, "" if nothing did
	Code        string
	Message     string
	Err         error // *machine.Illegal: the event means nothing in this phase; store nothing
}
