package devnet

import (
	"encoding/json"
	"time"
)

// FinalDepth is how many confirmations a block has that no reorg can take out.
const FinalDepth = 3

// State is what the ledger knows of a transaction.
type State string

const (
	Pending  State = "pending"  // in the pool
	Included State = "included" // in a block, and it did well
	Failed   State = "failed"   // in a block that shows a reason; the fee is paid and the nonce used
	Dropped  State = "dropped"  // was in the pool and no longer is: dropped, replaced, or lost in a reorg
	Unknown  State = "unknown"  // never seen
)

// Status is what the ledger knows of one transaction.
type Status struct {
	Hash          string  `json:"hash"`
	State         State   `json:"state"`
	From          Address `json:"from,omitempty"`
	Nonce         uint64  `json:"nonce"`
	Fee           uint64  `json:"fee,string"`
	Memo          string  `json:"memo,omitempty"`
	Height        uint64  `json:"height,omitempty"`        // of its block
	Confirmations uint64  `json:"confirmations,omitempty"` // 1 in the last block
	Reason        string  `json:"reason,omitempty"`        // why it failed or was dropped
	ReplacedBy    string  `json:"replaced_by,omitempty"`
}

// Final says whether no reorg can take the transaction out of its block.
func (s Status) Final() bool { return s.Confirmations >= FinalDepth }

// Account is what the ledger knows of an account.
type Account struct {
	Address    Address `json:"address"`
	Balance    uint64  `json:"balance,string"`
	Nonce      uint64  `json:"nonce"`       // the next, after the last block
	FinalNonce uint64  `json:"final_nonce"` // the next, after the last final block: lower ones are used for good
	NextNonce  uint64  `json:"next_nonce"`  // the first that no block and nothing in the pool uses
	Pool       int     `json:"pool"`        // how many it has in the pool
}

// App is what the ledger knows of an app.
type App struct {
	Name    string `json:"name"`
	Calls   uint64 `json:"calls"`
	Balance uint64 `json:"balance,string"`
	Root    string `json:"root"` // digest of all calls
}

// Block is one block of the canonical chain.
type Block struct {
	Height        uint64    `json:"height"`
	Hash          string    `json:"hash"`
	Parent        string    `json:"parent"`
	Time          time.Time `json:"time"`
	Transactions  []string  `json:"transactions"`
	Confirmations uint64    `json:"confirmations"`
	Final         bool      `json:"final"`
}

// Event is one effect of a final transaction that did well: one for each of its calls.
type Event struct {
	ID         string          `json:"id"` // digest and index
	Checkpoint uint64          `json:"checkpoint"`
	Digest     string          `json:"digest"` // hash of the transaction
	Index      int             `json:"index"`
	Type       string          `json:"type"` // "transfer", or the method
	From       Address         `json:"from"`
	To         string          `json:"to"`
	Amount     uint64          `json:"amount,string"`
	Memo       string          `json:"memo,omitempty"`
	Args       json.RawMessage `json:"args,omitempty"`
}

// Events is a page of the event log. NextCursor names the last event of the page, or is the cursor asked
// with where the page is empty.
type Events struct {
	Events     []Event `json:"events"`
	NextCursor string  `json:"next_cursor"`
	HasMore    bool    `json:"has_more"`
}

// Reorged says what a reorg did.
type Reorged struct {
	Height   uint64   `json:"height"` // the first that is no longer what it was
	Returned []string `json:"returned"`
	Lost     []string `json:"lost"`
}

// Health says which ledger answers, and how it stands.
type Health struct {
	OK        bool   `json:"ok"`
	Chain     string `json:"chain"`
	Height    uint64 `json:"height"`
	Pool      int    `json:"pool"`
	Reorgs    int    `json:"reorgs"` // that there ever were
	Granted   uint64 `json:"granted,string"`
	Sink      uint64 `json:"sink,string"` // all fees ever paid
	StateHash string `json:"state_hash"`
}

// Faults is what goes wrong on purpose. Chances are from 0 to 1; the zero value is a ledger that works.
type Faults struct {
	Refuse     float64 `json:"refuse"`      // chance that a call is answered 503 and nothing is done
	Slow       string  `json:"slow"`        // a duration by which each answer comes later
	Lose       float64 `json:"lose"`        // chance that a call is done and its connection closed without an answer
	Wrong      float64 `json:"wrong"`       // chance that a call is done and answered with nonsense
	Drop       float64 `json:"drop"`        // chance, with each block, that a transaction is dropped from the pool
	Halt       bool    `json:"halt"`        // no blocks
	ReorgEvery int     `json:"reorg_every"` // a reorg after so many blocks; 0: none
	ReorgDepth int     `json:"reorg_depth"` // 1 or 2; 0: by chance
	ReorgLose  float64 `json:"reorg_lose"`  // chance that a transaction does not return from a reorg
}

// Refusal is an answer of 4xx or 5xx.
type Refusal struct {
	Status    int    `json:"-"`
	Code      string `json:"code"`
	Message   string `json:"message"`
	NextNonce uint64 `json:"next_nonce,omitempty"` // with nonce_used and nonce_far
	LeastFee  uint64 `json:"least_fee,omitempty,string"`
}

// Error returns the sentence.
func (r *Refusal) Error() string { return r.Message }

// The codes of a Refusal.
const (
	CodeInvalid      = "invalid"            // the request is wrong; the message names the field
	CodeWrongChain   = "wrong_chain"        // signed for another ledger
	CodeNoAccount    = "account_not_found"  // it never got any money
	CodeNonceUsed    = "nonce_used"         // a block has another transaction with it
	CodeNonceFar     = "nonce_far"          // too far above the next one
	CodeFeeTooLow    = "fee_too_low"        // does not replace what is in the pool
	CodeInsufficient = "insufficient_funds" // the account cannot pay fee and amounts
	CodePoolFull     = "pool_full"
	CodeNotFound     = "not_found"
	CodeUnavailable  = "unavailable" // a fault was asked for, or the ledger is broken
)
