package devnet

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/postern-dev/postern/internal/fault"
)

// Limits of a transaction.
const (
	MaxBody   = 1 << 20 // bytes of a signed body
	MaxCalls  = 256
	MaxAmount = 1 << 62 // of money, also of all that the faucet ever gives
	maxName   = 128     // of an app or a method
)

// Tx is what an account signs: its calls are done in order, all or none.
type Tx struct {
	Chain string  `json:"chain"` // id of the ledger: another one refuses it
	From  Address `json:"from"`
	Nonce uint64  `json:"nonce"`
	Fee   uint64  `json:"fee,string"`
	Calls []Call  `json:"calls"`
	Memo  string  `json:"memo,omitempty"` // comes back in events
	Fate  *Fate   `json:"fate,omitempty"`
}

// Call is one thing that a transaction does. Without a method it moves money; with one it calls an app,
// which counts the call, keeps a digest of all that it was ever called with, and takes the amount. The
// method "create" fails where the app exists, "require" where it does not, "revert" always; an app is created by its
// first call.
type Call struct {
	To     string          `json:"to"` // an address, or the name of an app
	Method string          `json:"method,omitempty"`
	Amount uint64          `json:"amount,string,omitempty"`
	Args   json.RawMessage `json:"args,omitempty"`
}

// Fate is what a transaction wants to happen to itself, for trying things out.
type Fate struct {
	After  int    `json:"after,omitempty"`  // not before so many blocks from now
	Never  bool   `json:"never,omitempty"`  // pending until it is replaced
	Vanish bool   `json:"vanish,omitempty"` // dropped from the pool with the next block
	Revert string `json:"revert,omitempty"` // fails in its block, with this reason
}

// Signed is a transaction as it goes over the wire. The signature is that of the text of Body as it stands, so that no
// two languages have to agree on how JSON is written.
type Signed struct {
	Body      string `json:"body"`
	Signature string `json:"signature"` // hexadecimal
}

// Sign writes and signs a transaction. The same transaction is always the same text with the same hash.
func Sign(tx Tx, key ed25519.PrivateKey) (Signed, error) {
	body, err := json.Marshal(tx)
	if err != nil {
		return Signed{}, err
	}
	return Signed{Body: string(body), Signature: hex.EncodeToString(ed25519.Sign(key, body))}, nil
}

// Hash names a signed transaction: the SHA-256 of its body, in hexadecimal.
func (s Signed) Hash() string {
	sum := sha256.Sum256([]byte(s.Body))
	return hex.EncodeToString(sum[:])
}

// Open checks form and signature and returns the transaction. An error is Invalid and names the field.
func (s Signed) Open() (tx Tx, err error) {
	if len(s.Body) > MaxBody {
		return Tx{}, fault.At("/body", "the body has %d bytes: want at most %d", len(s.Body), MaxBody)
	}
	dec := json.NewDecoder(strings.NewReader(s.Body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&tx); err != nil || dec.More() {
		return Tx{}, fault.At("/body", "the body is no transaction (%v): want {chain, from, nonce, fee, calls}", err)
	}
	key, err := tx.From.key()
	if err != nil {
		return Tx{}, err
	}
	if sig, err := hex.DecodeString(s.Signature); err != nil || !ed25519.Verify(key, []byte(s.Body), sig) {
		return Tx{}, fault.At("/signature", "the signature is not that of %s over the body", tx.From)
	}
	return tx, tx.Validate()
}

// Validate says whether a transaction is well formed; whether it can be done only its block knows.
func (tx Tx) Validate() error {
	switch {
	case tx.Fee < 1 || tx.Fee > MaxAmount:
		return fault.At("/fee", "the fee is %d: want 1 to 2^62", tx.Fee)
	case len(tx.Calls) > MaxCalls:
		return fault.At("/calls", "there are %d calls: want at most %d", len(tx.Calls), MaxCalls)
	case len(tx.Memo) > 2*maxName:
		return fault.At("/memo", "the memo has %d bytes: want at most %d", len(tx.Memo), 2*maxName)
	}
	total := tx.Fee
	for _, c := range tx.Calls {
		switch {
		case c.To == "" || len(c.To) > maxName:
			return fault.At("/calls/to", "a call goes to %q: want an address, or the name of an app of 1 to %d bytes",
				fault.Clip(c.To), maxName)
		case len(c.Method) > maxName:
			return fault.At("/calls/method", "a method has %d bytes: want at most %d", len(c.Method), maxName)
		case c.Method != "" && IsAddress(c.To):
			return fault.At("/calls/to", "the method %q is called on an address: want the name of an app",
				fault.Clip(c.Method))
		case c.Amount > MaxAmount || total+c.Amount > MaxAmount:
			return fault.At("/calls/amount", "fee and amounts are more than 2^62, all the money there can be")
		}
		total += c.Amount
	}
	return nil
}

// Cost is what a transaction takes from its account if it does well.
func (tx Tx) Cost() uint64 {
	cost := tx.Fee
	for _, c := range tx.Calls {
		cost += c.Amount
	}
	return cost
}

// Outbid is the least fee that replaces one in the pool: a tenth more, rounded up.
func Outbid(fee uint64) uint64 { return fee + (fee+9)/10 }
