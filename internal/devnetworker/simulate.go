package devnetworker

import (
	"encoding/json"
	"time"

	"github.com/postern-dev/postern/internal/devnet"
)

// simulate is what a transaction wants to be done to it: the member "simulate" of its data, which the samples in
// testdata/transactions use. Its times are counts of attempts. Unavailable and lose_answer consume no attempt: they are
// counted until the worker restarts.
type simulate struct {
	IncludeAfterBlocks int        `json:"include_after_blocks"`
	Slow               string     `json:"slow"`          // a duration: the answer takes so long
	Never              bool       `json:"never"`         // pending for ever
	Reject             *simulated `json:"reject"`        // error, each time
	FailDispatch       *simulated `json:"fail_dispatch"` // error, so many times
	FailInBlock        *simulated `json:"fail_in_block"` // in a block with a reason, so many times
	Vanish             *simulated `json:"vanish"`        // accepted, then dropped from the pool
	Unavailable        *simulated `json:"unavailable"`   // HTTP 503
	LoseAnswer         *simulated `json:"lose_answer"`   // executed, then the connection drops
}

// simulated says how often something goes wrong, and in which words.
type simulated struct {
	Times   int    `json:"times"`
	Code    int    `json:"code"`
	Message string `json:"message"`
	Reason  string `json:"reason"`
}

// simulateOf reads the member; data of another shape wants nothing.
func simulateOf(data json.RawMessage) simulate {
	var d struct{ Simulate simulate }
	_ = json.Unmarshal(data, &d)
	return d.Simulate
}

// due says whether s happens for the nth time.
func (s *simulated) due(n int) bool { return s != nil && n <= s.Times }

// as is s as the error of an answer.
func (s *simulated) as(code int, message string) refusal {
	if s.Code != 0 {
		code = s.Code
	}
	if s.Message != "" {
		message = s.Message
	}
	return refusal{code, message}
}

// fate is what the ledger is asked to do to an attempt, nil for nothing.
func (s simulate) fate(attempt int) *devnet.Fate {
	f := devnet.Fate{After: s.IncludeAfterBlocks, Never: s.Never, Vanish: s.Vanish.due(attempt)}
	if !f.Vanish && s.FailInBlock.due(attempt) {
		if f.Revert = s.FailInBlock.Reason; f.Revert == "" {
			f.Revert = "Update_not_permitted_app_state"
		}
	}
	if f == (devnet.Fate{}) {
		return nil
	}
	return &f
}

// pause is how long an answer takes.
func (s simulate) pause() time.Duration {
	d, err := time.ParseDuration(s.Slow)
	if err != nil {
		return 0
	}
	return max(d, 0)
}

// again counts how often something happened to a transaction since the worker began, this time included.
func (w *Worker) again(what, transaction string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what+" "+transaction]++
	return w.counts[what+" "+transaction]
}
