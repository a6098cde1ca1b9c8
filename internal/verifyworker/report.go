package verifyworker

import "fmt"

// State is how a check ended.
type State string

// The states of a check.
const (
	OK         State = "ok"
	Failed     State = "failed"
	NotOffered State = "not offered" // the worker lacks something that it may lack
	NotRun     State = "not run"     // something before it failed, or there was nothing to look at
)

// Check is one promise of the contract, and how the worker keeps it.
type Check struct {
	Name      string `json:"name"`
	Paragraph string `json:"paragraph"` // of docs/worker-contract.md, which it checks
	State     State  `json:"state"`
	Found     string `json:"found"`          // what the worker did; of a missing one, what that means
	Cost      string `json:"cost,omitempty"` // of a failed one: what it would cost in production
}

// Report is what came of all checks, in their order.
type Report struct {
	URL    string  `json:"url"`
	Type   string  `json:"type"`
	OK     bool    `json:"ok"` // nothing failed
	Failed int     `json:"failed"`
	Checks []Check `json:"checks"`
}

// finding is what a check returns.
type finding struct {
	state State
	found string
}

func ok(format string, args ...any) finding     { return finding{OK, fmt.Sprintf(format, args...)} }
func failed(format string, args ...any) finding { return finding{Failed, fmt.Sprintf(format, args...)} }
func notOffered(format string, args ...any) finding {
	return finding{NotOffered, fmt.Sprintf(format, args...)}
}
func notRun(format string, args ...any) finding { return finding{NotRun, fmt.Sprintf(format, args...)} }
