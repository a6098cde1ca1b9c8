package remotetest

import (
	"encoding/json"
	"net/http"
	"time"
)

// Ops of the worker contract, as they stand in Seen.Op and Match.Op.
const (
	OpDispatch   = "dispatch"
	OpStatus     = "status"
	OpBatch      = "status:batch"
	OpOnSuccess  = "on-success"
	OpOnFailure  = "on-failure"
	OpMaxRetries = "max-retries"
	OpHealth     = "health"
)

// Seen is one call as the fake saw it.
type Seen struct {
	Op             string
	Type           string
	UID            string
	Data           json.RawMessage
	State          string
	Hash           string // txData's, or the hash that was asked after
	Hashes         []string
	Account        string
	WorkerURL      string
	Queue          string
	SenderState    string
	Retries        int
	SecretKey      string
	Attributes     json.RawMessage // of the sender
	Token          string
	Attempt        int
	Fence          int64
	Line           string // within which fences are compared
	Position       int64
	Fee            string
	FeeFactor      string
	PreviousHashes []string
	Nonce          string
	Deadline       string
	Result         json.RawMessage // of a hook
	Before         json.RawMessage // of a dispatch: the answer to the attempt before
	Header         http.Header
	Body           json.RawMessage
	At             time.Time
	Repeat         bool // a dispatch whose token was executed before
}

// Match picks calls; a zero field matches everything.
type Match struct {
	Op, Type, UID, Queue, Token, Account, Hash string
	Attempt                                    int
}

// fits says whether c is one of those.
func (m Match) fits(c Seen) bool {
	same := func(want, got string) bool { return want == "" || want == got }
	return same(m.Op, c.Op) && same(m.Type, c.Type) && same(m.UID, c.UID) && same(m.Queue, c.Queue) &&
		same(m.Token, c.Token) && same(m.Account, c.Account) && same(m.Hash, c.Hash) &&
		(m.Attempt == 0 || m.Attempt == c.Attempt)
}

// wire is the union of all bodies of the contract (S2.7).
type wire struct {
	TxData struct {
		UID, Type, State, Hash string
		Data                   json.RawMessage
	}
	Sender struct {
		AccountID, SecretKey, WorkerURL, Queue, State string
		Retries                                       int
		Attributes                                    json.RawMessage
	}
	Postern struct {
		Token          string
		Attempt        int
		Fence          int64
		Position       int64
		Fee, Nonce     string
		FeeFactor      string   `json:"fee_factor"`
		PreviousHashes []string `json:"previous_hashes"`
		Deadline       string
	}
	Result      json.RawMessage
	Hash, Token string
	Hashes      []string
}

// see reads a call. A body that cannot be read leaves its fields empty and stands in Body.
func see(op, typ string, h http.Header, body []byte) Seen {
	var w wire
	_ = json.Unmarshal(body, &w)
	s := Seen{
		Op: op, Type: typ, UID: w.TxData.UID, Data: w.TxData.Data, State: w.TxData.State, Hash: w.TxData.Hash,
		Account: w.Sender.AccountID, WorkerURL: w.Sender.WorkerURL, Queue: w.Sender.Queue, SenderState: w.Sender.State,
		Retries: w.Sender.Retries, SecretKey: w.Sender.SecretKey, Attributes: w.Sender.Attributes,
		Token: w.Postern.Token, Attempt: w.Postern.Attempt, Fence: w.Postern.Fence,
		Position: w.Postern.Position, Fee: w.Postern.Fee,
		PreviousHashes: w.Postern.PreviousHashes, Nonce: w.Postern.Nonce,
		FeeFactor: w.Postern.FeeFactor,
		Line:      h.Get("Postern-Line"),
		Deadline:  w.Postern.Deadline, Result: w.Result, Hashes: w.Hashes, Header: h, Body: body, At: time.Now(),
	}
	if op == OpDispatch {
		s.Result, s.Before = nil, w.Result
	}
	if op == OpStatus {
		s.Token, s.Hash = w.Token, w.Hash
	}
	return s
}
