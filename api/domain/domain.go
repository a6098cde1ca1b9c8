package domain

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// Service is what the service of a domain does. T is the data of its intents.
type Service[T any] struct {
	// Assemble makes of an intent what is to be signed and endorsed. It runs where the intent was posted.
	Assemble func(context.Context, Assembly[T]) (Assembled, error)
	// Sign makes the signature of a party of this node, and Endorse its endorsement. Both see what was assembled.
	Sign    func(context.Context, Ticket) (any, error)
	Endorse func(context.Context, Ticket) (any, error)
	// Prepare makes the public transaction. It runs where the domain is coordinated.
	Prepare func(context.Context, Preparation) (Public, error)

	// Look says whether the ledger has the public transaction of an intent for good. nil: the service cannot say. The
	// domain lists it in service_calls, and so it does Settled and Height.
	Look func(ctx context.Context, intent string) (bool, error)
	// Settled is told, at least once, of an intent that succeeded.
	Settled func(context.Context, Settlement) error
	// Height says the height of the ledger.
	Height func(context.Context) (int64, error)
}

// Call is what each call says.
type Call struct {
	Key    string `json:"key"` // the same key gets the same answer
	Domain string `json:"domain"`
}

// Intent is what is to be done once.
type Intent struct {
	ID    string `json:"id"`
	Party string `json:"party"` // whose it is: name@node
}

// Assembly is an intent that is to be assembled.
type Assembly[T any] struct {
	Call
	Intent
	Data    T
	Height  int64
	Pending Pending
}

// Pending are states that may be used before the ledger has them, and states that may not be used though it has.
type Pending struct {
	Outputs []struct {
		ID   string          `json:"id"`
		Data json.RawMessage `json:"data"`
		By   string          `json:"by"` // the intent that makes it
	} `json:"outputs"`
	Spent []string `json:"spent"`
}

// The types of attestations.
const (
	Sign    = "sign"
	Endorse = "endorse"
)

// Assembled is what was made of an intent.
type Assembled struct {
	Assembled any           `json:"assembled"`         // what endorsers and Prepare see of it
	Inputs    []string      `json:"inputs,omitempty"`  // ids of states that it spends
	Outputs   []Output      `json:"outputs,omitempty"` // states that it makes
	Plan      []Attestation `json:"plan,omitempty"`
}

// Output is a state that an intent makes.
type Output struct {
	ID   string   `json:"id"`
	Data any      `json:"data,omitempty"`
	To   []string `json:"to,omitempty"` // nodes that may use it before the ledger has it; none but the own unless said
}

// Attestation is what an intent needs: of its parties (name@node) so many. 0: all.
type Attestation struct {
	Name      string   `json:"name"`
	Type      string   `json:"type"`
	Parties   []string `json:"parties"`
	Threshold int      `json:"threshold,omitempty"`
}

// Ticket is something that a party is to sign or to endorse.
type Ticket struct {
	Call
	Name       string            `json:"name"` // of the attestation
	Party      string            `json:"party"`
	Hash       string            `json:"hash"` // of all below, in hexadecimal digits
	Assembled  json.RawMessage   `json:"assembled"`
	Inputs     []string          `json:"inputs"`
	Outputs    []json.RawMessage `json:"outputs"`
	Signatures []Given           `json:"signatures"`
}

// Given is a signature, or an endorsement, of a party.
type Given struct {
	Name  string          `json:"name"`
	Party string          `json:"party"`
	Data  json.RawMessage `json:"data"`
}

// Preparation is what a public transaction is made of. The data of the intent stays at its node.
type Preparation struct {
	Ticket
	Intent       Intent  `json:"intent"`
	Endorsements []Given `json:"endorsements"`
}

// Public is a public transaction: its type is one of the domain's types.
type Public struct {
	Type string `json:"type"`
	Data any    `json:"data"`
}

// Settlement is an intent that succeeded.
type Settlement struct {
	Call
	Intent  Intent            `json:"intent"`
	Inputs  []string          `json:"inputs"`
	Outputs []json.RawMessage `json:"outputs"`
	Height  int64             `json:"height"`
}

// refusal is an answer that is no success.
type refusal struct {
	Result string `json:"result"`
	Reason string `json:"reason"`
	Resume *after `json:"resume,omitempty"`
}

type after struct {
	After string `json:"after"`
}

// Error returns the reason.
func (r *refusal) Error() string { return r.Reason }

// Revert ends an intent: it fails for this reason. Of an endorsement it is a refusal.
func Revert(reason string) error { return &refusal{Result: "REVERT", Reason: reason} }

// Park has an intent wait, while others overtake it: for so long, or until somebody resumes it (0). It is for Assemble
// and Sign.
func Park(reason string, wait time.Duration) error {
	r := &refusal{Result: "PARK", Reason: reason}
	if wait > 0 {
		r.Resume = &after{wait.String()}
	}
	return r
}

// refused returns the refusal in an error, or nil.
func refused(err error) *refusal {
	var r *refusal
	if errors.As(err, &r) {
		return r
	}
	return nil
}
