package worker

import (
	"bytes"
	"encoding/json"
	"math/big"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Call is one dispatch: what to do, and what is known of it.
type Call[T any] struct {
	Info
	Data   T      // txData.data; data that does not fit into T is rejected with code bad_data
	Before Result // the last answer to an earlier attempt; its All is nil for none
}

// Ended is what a hook is told: how a transaction ended.
type Ended[T any] struct {
	Info
	Data   T
	Result Result
}

// Result is what a transaction ended with, or the answer to an earlier attempt.
type Result struct {
	Hash  string          `json:"hash"`
	Done  json.RawMessage `json:"done"`
	Data  json.RawMessage `json:"data"`
	Error json.RawMessage `json:"error"`
	All   json.RawMessage `json:"-"` // as it came, with the other members that this type's worker answered
}

// UnmarshalJSON reads it, and keeps all of it.
func (r *Result) UnmarshalJSON(b []byte) error {
	type known Result
	if err := json.Unmarshal(b, (*known)(r)); err != nil {
		return err
	}
	r.All = bytes.Clone(b)
	return nil
}

// Info is what a call says besides its data.
type Info struct {
	Token          string   // names this attempt: equal only when it is sent again
	Transaction    string   // names the transaction, for good: its token without the attempt, the same for all attempts
	UID            string   // the client's name of the transaction; not unique over contexts
	Type           string   // of the transaction
	Queue          string   // "" for unordered work
	Account        string   // of the sender; "" for types without one
	Attempt        int      // from 1
	Retries        int      // so many attempts failed before
	Fence          int64    // rises with each owner of the line, and never falls
	Line           string   // within what fences are compared: opaque; "" for work whose fences are not
	Position       int64    // in the queue
	Fee            string   // to offer, in digits; "" where none is known
	FeeFactor      string   // of this attempt's fee to the first, such as "1.1": see Offer
	Nonce          string   // of the earlier attempt, in digits
	PreviousHashes []string // of earlier attempts: to be replaced, so that only one of them happens
	PostedAt       time.Time
	Deadline       time.Time // after it Postern asks /status; zero where the call names none
	Traceparent    string
	Again          bool // this token began before and its end is unknown: look before you do it
}

// Offer is the fee of this attempt in digits: as the call says, else first times the factor of the attempt, rounded
// up. Name it with WithFee; then the next attempt says what to offer.
func (i Info) Offer(first uint64) string {
	if i.Fee != "" {
		return i.Fee
	}
	factor, ok := new(big.Rat), strings.Trim(i.FeeFactor, "0123456789.") == ""
	if ok {
		factor, ok = factor.SetString(i.FeeFactor)
	}
	if !ok { // of a caller that knows no factor
		factor = big.NewRat(1, 1)
	}
	fee := factor.Mul(factor, new(big.Rat).SetInt(new(big.Int).SetUint64(first)))
	up := new(big.Int).Add(fee.Num(), fee.Denom())
	return up.Sub(up, big.NewInt(1)).Div(up, fee.Denom()).String()
}

// wire is the body of a dispatch or hook.
type wire struct {
	TxData struct {
		UID, Type string
		Data      json.RawMessage
		TS        string
	} `json:"txData"`
	Sender struct {
		AccountID string `json:"accountId"`
		Queue     string
		Retries   int
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
	Result Result
}

// info reads what a call says. A caller that knows no tokens has the client's uid and the number of the
// retry; these name the attempt then.
func (c wire) info(typ string, h http.Header) Info {
	in := Info{
		Token: c.Postern.Token, UID: c.TxData.UID, Type: typ, Queue: c.Sender.Queue, Account: c.Sender.AccountID,
		Attempt: c.Postern.Attempt, Retries: c.Sender.Retries, Fence: c.Postern.Fence, Position: c.Postern.Position,
		Fee: c.Postern.Fee, FeeFactor: c.Postern.FeeFactor,
		Nonce: c.Postern.Nonce, PreviousHashes: c.Postern.PreviousHashes,
		Line: h.Get("Postern-Line"), Traceparent: h.Get("Traceparent"),
	}
	in.PostedAt, _ = time.Parse(time.RFC3339, c.TxData.TS)
	in.Deadline, _ = time.Parse(time.RFC3339, c.Postern.Deadline)
	if in.Token == "" && in.UID != "" {
		in.Token = "uid/" + in.UID + "." + strconv.Itoa(in.Retries+1)
	}
	in.Transaction = in.Token
	if i := strings.LastIndexByte(in.Token, '.'); i > 0 {
		in.Transaction = in.Token[:i]
	}
	return in
}
