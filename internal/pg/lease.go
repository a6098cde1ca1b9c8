package pg

import (
	"encoding/json"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/sequencer"
)

// Lease is one transaction that a node has in hand: all that a call to its worker needs, and the fence under which its
// answer may be recorded. A poll is one, too, though its queue has no owner: its timer, put off, keeps others away.
type Lease struct {
	Task       *Task
	Queue      string // "" for unordered work
	Dispatcher *Dispatcher

	Fence   int64
	Epoch   int32 // of the node that holds it; 0: no node does, as in a poll
	Phase   outbox.Phase
	Attempt int
	Retries int
	Fee     string
	Since   time.Time // into this phase, by the deciding clock
	ReadAt  time.Time // when this was read, by the deciding clock
	got     time.Time // the same moment on our own monotonic clock

	SenderID  int32
	Account   string
	SenderURL string // the sender's own worker, "" = the dispatcher's
	// SenderAttributes are what the settings of the sender say besides, for the worker that signs; nil: nothing.
	SenderAttributes json.RawMessage
	Blames           bool // its pool blocks the sender after a failure (S1.13)
	senderVersion    int64

	Resume     bool      // of a dead node, or its outcome is unknown: ask before anything is sent
	Resent     bool      // this attempt was sent before
	Blocked    time.Time // since when its calls come to nothing; zero: they do not
	Cancelling bool      // somebody asked to cancel it
	Earlier    []Attempt // newest first; of a first attempt none, unless it is resumed or came to nothing

	Probe       bool // the gate of its type is closed, and this call tries whether it may open
	ProbeSender bool // so is that of its sender

	tail  int64     // the last position of its queue, as the row said
	ahead []*Task   // those right behind it, as far as they were read
	row   *QueueRow // of its queue as it was written or read last, nil if that is not known
}

// Attempt is one earlier dispatch or its end, as recorded.
type Attempt struct {
	Attempt int             `json:"attempt"`
	Step    string          `json:"step"`
	Fence   int64           `json:"fence"`
	Sender  string          `json:"sender,omitempty"`
	Node    string          `json:"node,omitempty"`
	Fee     string          `json:"fee,omitempty"`
	Nonce   string          `json:"nonce,omitempty"`
	Hash    string          `json:"hash,omitempty"`
	Data    json.RawMessage `json:"-"`
	Members json.RawMessage `json:"-"` // what the worker answered besides
	Class   outbox.Class    `json:"class,omitempty"`
	Code    string          `json:"code,omitempty"`
	Error   string          `json:"error,omitempty"`

	NothingDone bool `json:"-"` // it is certain that this call had no effect
	Doubted     bool `json:"-"` // its worker itself said that it may have had one

	StartedAt  *time.Time `json:"started_at,omitempty"`
	AnsweredAt time.Time  `json:"answered_at"`

	Calls int `json:"-"` // of this attempt that say the same, where this is the newest that is read for all of them
}

// ID names the transaction.
func (l *Lease) ID() outbox.ID { return l.Task.ID }

// WorkerURL is where the transaction is executed: at the sender's worker, else at the dispatcher's.
func (l *Lease) WorkerURL() string {
	if l.SenderURL != "" {
		return l.SenderURL
	}
	return l.Dispatcher.WorkerURL
}

// Now is the deciding clock as far as we can tell without asking: when the lease was read, and what our
// own clock says has passed since.
func (l *Lease) Now() time.Time { return l.ReadAt.Add(time.Since(l.got)) }

// Flight is what decisions may know of the lease now.
func (l *Lease) Flight(maxRetries int) sequencer.Flight {
	f := sequencer.Flight{
		Phase: l.Phase, Attempt: l.Attempt, Retries: l.Retries, MaxRetries: maxRetries, Fee: l.Fee, FirstFee: l.Fee,
		Since: l.Now().Sub(l.Since), Cancelling: l.Cancelling, Resent: l.Resent, PinnedSender: l.Task.SenderID != 0,
		BlamesSender: l.Blames, SenderGone: l.SenderID == 0 && l.Dispatcher.PoolID != 0,
		Called: l.Resent,
		Again:  l.Resent || l.Probe || l.ProbeSender,
	}
	calls := 0 // of this token, as far as they were recorded: of a lease that resumes, the last of them, too
	if !l.Blocked.IsZero() {
		f.Blocked = l.Now().Sub(l.Blocked)
	}
	for _, a := range l.Earlier { // which is read of what is pinned or blocked, too
		if a.Attempt == l.Attempt && a.Step == "unknown" && f.Unclear == (sequencer.Unclear{}) {
			f.Unclear = sequencer.Unclear{Code: a.Code, Why: a.Error, Told: a.Doubted}
		}
		if a.Attempt == l.Attempt {
			f.Called = f.Called || !a.NothingDone
			calls += a.Calls
		}
		if a.Hash != "" && f.LastHash == "" {
			f.LastHash = a.Hash
		}
		if a.Hash != "" || a.Class == outbox.ClassAmbiguous && a.Step != "unknown" {
			f.EarlierOpen = f.EarlierOpen || a.Attempt < l.Attempt
		}
		if a.Fee != "" {
			f.FirstFee = a.Fee
		}
	}
	f.Again = f.Again || calls > 1 || calls == 1 && !l.Resume
	return f
}

// Hashes returns the hashes of all accepted attempts, newest first, each once.
func (l *Lease) Hashes() []string {
	var list []string
	seen := map[string]bool{}
	for _, a := range l.Earlier {
		if a.Hash != "" && !seen[a.Hash] {
			seen[a.Hash] = true
			list = append(list, a.Hash)
		}
	}
	return list
}

// Nonce returns the nonce of the last attempt that had one.
func (l *Lease) Nonce() string {
	for _, a := range l.Earlier {
		if a.Nonce != "" {
			return a.Nonce
		}
	}
	return ""
}

// Data is the transaction's data as the last accepted attempt left it (S2.5 row 3).
func (l *Lease) Data() json.RawMessage {
	for _, a := range l.Earlier {
		if len(a.Data) > 0 {
			return a.Data
		}
	}
	return l.Task.Data
}

// Answer is how one step of a lease ended: the answer of the worker and the decision about it.
type Answer struct {
	Lease       *Lease
	Step        sequencer.Step
	Result      outbox.Result
	BlockHeight string
	StartedAt   time.Time
	// Continue asks for the next of the queue under the same lease, if there is one that may go.
	Continue bool
	// Yield ends the quantum: the row is written, and the queue goes to the end of its lane if
	// Continue is not set.
	Yield bool
	// Verdict is what the answer to a dispatch says about the address that was called, and Gate what becomes of its
	// gate.
	Verdict sequencer.Verdict
	Gate    sequencer.Move
	// Unclear is the answer of the call before, where it left the outcome unknown, so that the worker was asked and
	// this answer came. nil: there was no such call. It is kept, since people ask about unknown outcomes most (S2.5 row
	// 8).
	Unclear *outbox.Answer

	// found is the row of a queue that no node has, as it was when the worker was asked about the lost time; nil: a
	// lease has it.
	found *QueueRow
}

// Settled is what became of an answer.
type Settled struct {
	// Fenced: somebody else has the queue. The answer was kept as a late one and changed nothing.
	Fenced bool
	// Next is the lease to go on with: the same transaction (ThenCall) or the next of its queue.
	Next *Lease
	// Err is why this one of a batch could not be recorded, while others were.
	Err error

	apart bool // left out of the common commit, since others depend on it
}
