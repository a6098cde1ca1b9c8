package worker

import (
	"encoding/json"
	"fmt"
	"strings"
)

// largest is how much of a result fits into an answer: Postern reads 1 MiB of one.
const largest = 1<<20 - 4<<10

// Answer is what a dispatch is answered. A handler makes one with Sent or Done; a store keeps it as
// JSON.
type Answer struct {
	Hash  string          `json:"hash"`
	Done  json.RawMessage `json:"done"`
	Error *Error          `json:"error"`
	Data  json.RawMessage `json:"data,omitempty"`
	Nonce string          `json:"nonce,omitempty"`
	Fee   string          `json:"fee,omitempty"`
}

// Sent says that it is on its way under this hash: 1 to 512 printable characters without blanks. The
// worker wants Options.Status then, or it is never seen to arrive.
func Sent(hash string) Answer { return Answer{Hash: hash} }

// Done says that all is done, with v as the result. It turns nil and {} into true, since Postern reads an empty done as
// "not done". It replaces a v that is no JSON, or too large to be read, by a sentence about it: the transaction is done
// even if its result cannot be told.
func Done(v any) Answer {
	b, err := json.Marshal(v)
	switch {
	case err != nil:
		b, _ = json.Marshal(map[string]string{"note": "the result is no JSON: " + err.Error()})
	case len(b) > largest:
		b, _ = json.Marshal(map[string]string{"note": fmt.Sprintf("the result has %d bytes, more than the %d that an answer may have", len(b), largest)})
	case string(b) == "null", string(b) == "{}":
		b = []byte("true")
	}
	return Answer{Done: b}
}

// WithNonce names the nonce of what was sent, in digits: a retry carries it, to be replaced under it.
func (a Answer) WithNonce(digits string) Answer { a.Nonce = digits; return a }

// WithFee names the fee of what was sent, in digits: the first fee, if the dispatcher names none.
func (a Answer) WithFee(digits string) Answer { a.Fee = digits; return a }

// WithData adds v to the answer, to be kept beside the hash. It leaves v out if v is no JSON or too large.
func (a Answer) WithData(v any) Answer {
	if b, err := json.Marshal(v); err == nil && len(b)+len(a.Done) <= largest {
		a.Data = b
	}
	return a
}

// checked returns a if Postern understands it. Otherwise the handler is wrong, and it is unknown what it did:
// ambiguous.
func (a Answer) checked() Answer {
	switch {
	case a.Error != nil:
		return Answer{Error: asError(a.Error), Hash: a.Hash}
	case a.Hash == "" && len(a.Done) == 0:
		return Answer{Error: &Error{Class: ClassAmbiguous, Code: "answer_empty",
			Message: "the handler returned neither Sent, Done nor an error"}}
	case a.Hash != "" && !plain(a.Hash):
		return Answer{Error: &Error{Class: ClassAmbiguous, Code: "answer_invalid",
			Message: "the handler's hash is not 1 to 512 printable characters without blanks"}}
	}
	return a
}

func plain(hash string) bool {
	return len(hash) <= 512 && !strings.ContainsFunc(hash, func(r rune) bool { return r <= ' ' || r > '~' })
}
