package chainsim

import "encoding/json"

// Types are the transaction types of seed 2, in the order in which a vote passes through them. The
// worker takes others too.
var Types = []string{
	"CREATE_CLAIM_VOTING_ACCOUNT",
	"SEND_CLAIM_VOTE",
	"CREATE_VOTING_BATCHES_ACCOUNT",
	"RECEIVE_VOTES_BATCH",
	"COMMIT_ALL_VOTING_BATCHES",
}

// Simulate is what a transaction wants to be done to it: the member "simulate" of its data. Counts are
// per transaction, over all its attempts; what is left out does not happen.
type Simulate struct {
	IncludeAfterBlocks int    `json:"include_after_blocks"` // 0: one to three, by chance
	Slow               string `json:"slow"`                 // a duration: the answer takes so long
	Never              bool   `json:"never"`                // pending for ever
	Reject             *Fault `json:"reject"`               // error, each time
	FailDispatch       *Fault `json:"fail_dispatch"`        // error, so many times
	FailInBlock        *Fault `json:"fail_in_block"`        // included with a failure reason, so many times
	Vanish             *Fault `json:"vanish"`               // accepted, then dropped from the pool
	Unavailable        *Fault `json:"unavailable"`          // HTTP 503
	LoseAnswer         *Fault `json:"lose_answer"`          // executed, then the connection drops
}

// Fault says how often something goes wrong, and in which words.
type Fault struct {
	Times   int    `json:"times"`
	Code    int    `json:"code"`
	Message string `json:"message"`
	Reason  string `json:"reason"`
}

// simulateOf reads the member; data of another shape wants nothing.
func simulateOf(data json.RawMessage) Simulate {
	var d struct{ Simulate Simulate }
	_ = json.Unmarshal(data, &d)
	return d.Simulate
}

// due says whether f still happens to a transaction to which it happened n times.
func (f *Fault) due(n int) bool { return f != nil && n < f.Times }
