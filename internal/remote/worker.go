package remote

import (
	"context"
	"encoding/json"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
)

// Call is one dispatch: everything the worker is told (S2.7).
type Call struct {
	BaseURL         string // {W}: the sender's worker, else the dispatcher's; "noop:" answers itself (Mux)
	Type            string
	ID              outbox.ID
	UID             string // the client's; "" = the id (S2.1)
	Queue           string // "" for unordered work (S2.18)
	Data            json.RawMessage
	State           outbox.State
	Hash            string
	PostedAt        time.Time
	Account         string // of the sender, "" for types without senders
	SenderWorkerURL string
	Attributes      json.RawMessage // of the sender; nil: none
	SenderState     string
	Retries         int
	Attempt         int
	Fence           int64
	Line            outbox.Line // within which Fence rises: the queue's for good; zero for unordered work
	Position        int64
	Fee             string          // digits, "" before the first is known
	Members         json.RawMessage // of a hook: members of the answer beside hash, done and data
	Before          json.RawMessage // of a dispatch: the answer to the attempt before, as Baton writes it
	FeeFactor       string          // of this attempt to the first, such as "1.1"; "" stands for "1"
	PreviousHashes  []string        // of earlier attempts, to be replaced under Nonce (S2.11)
	Nonce           string          // digits, of the earlier attempt
	Timeout         time.Duration
	Sign            bool // with the key of the client (S1.10)
	Traceparent     string
}

// Token is what the worker recognises the call by.
func (c Call) Token() string { return c.ID.Token(c.PostedAt, c.Attempt) }

// Worker is where our process ends. Client speaks HTTP, Mux answers "noop:" itself; both pass
// remotetest.Exercise.
type Worker interface {
	// Dispatch sends c once and classifies what came of it: no class (accepted with a hash, or done),
	// blocked (nothing was sent, or it cannot work now), ambiguous (ask Status by token before sending
	// again), rejected, or retry (S2.8). It ends within c.Timeout.
	Dispatch(ctx context.Context, c Call) outbox.Answer

	// Status asks after a token, or, if byToken is "", after a hash (S2.10, S2.11). Unreachable says
	// nothing about the transaction; unsupported means that the worker has no /status.
	Status(ctx context.Context, baseURL, typ, byToken, byHash string) outbox.Status

	// Alive looks whether a call might get through to the worker, without anything being executed: nil if it might,
	// else a fault that says what was answered instead. mute: the type says that its worker is never to be asked for a
	// status.
	Alive(ctx context.Context, baseURL, typ string, mute bool) error

	// StatusBatch asks after many hashes, in one call where the worker has /status:batch, else one by
	// one. The answers stand in the order of hashes, one for each.
	StatusBatch(ctx context.Context, baseURL, typ string, hashes []string) []outbox.Status

	// Hook tells the worker how c ended (S2.12). result is what the transaction ended with
	// ({hash, done, data}), errObj its error; either may be nil. token is of the id (HookToken). Deliver again later
	// unless the answer is OK or Missing.
	Hook(ctx context.Context, c Call, hook outbox.Hook, result, errObj json.RawMessage, token string) HookAnswer

	// MaxRetries asks how often the worker wants a type retried (S2.9): nil if it does not say (404).
	// An error means that it could not be asked; the caller then goes by its default.
	MaxRetries(ctx context.Context, baseURL, typ string) (*int, error)
}

// HookAnswer is what came of one delivery of a hook.
type HookAnswer struct {
	OK        bool            // 2xx: delivered
	Missing   bool            // 404, 405, 501: the worker has no such hook; nothing to repeat
	Refused   bool            // the settings of this process keep it from the address
	Status    int             // the HTTP status, 0 without an answer
	Body      json.RawMessage // what it said, to be recorded; nil if that is no JSON we can store
	Message   string          // why it was not delivered
	After     time.Duration   // least delay before the next try, 0 if none was named
	StartedAt time.Time
	Elapsed   time.Duration
}
