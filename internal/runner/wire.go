package runner

import (
	"encoding/json"
	"fmt"
)

// The calls of a runner. All of them are POST with a JSON body, below the URL of the API, for executors and admins of
// the context that the credential or the header Postern-Context names. A refusal is a problem document, whose codes are
// listed with each call. On the wire are durations only ("15s"): each side counts on a clock of its own.
const (
	// PathRegister begins an epoch: RegisterRequest, 200 RegisterAnswer. Registration makes the runner where no admin
	// has made it with PUT /runners/{name}. What an earlier epoch of the name held is offered anew, which is a lapse.
	// 409 runner_live: another instance was seen within its ttl, and takeover is not set.
	PathRegister = "/runners/{name}/register"

	// PathClaim takes up to max jobs for the runner: ClaimRequest, 200 ClaimAnswer, or 204 when there is nothing to
	// take and nothing to say. The query wait=30s lets the server wait that long for a job.
	// 404 not_found: no such runner (it was removed). 409 stale_epoch: register again. 409 runner_paused: come later.
	PathClaim = "/runners/{name}/claim"

	// PathRenew is the heartbeat of the runner, for all tries that it holds: RenewRequest, 200 RenewAnswer.
	// 404 and 409 stale_epoch as for claim: the runner kills every script. A paused runner renews as before.
	PathRenew = "/runners/{name}/renew"

	// PathLog appends lines to the log of a try: LogRequest, 204. The header Postern-Fence is required.
	// A line whose number is there already is not written again. 404, 409 stale_fence: the runner kills the script.
	PathLog = "/tries/{id}/log"

	// PathFinish and PathFail end a try: FinishRequest or FailRequest, 200 EndAnswer. Postern-Fence is required (428).
	// The same body again under the same fence is 200 with changed = false. 409 stale_fence: the try belongs to another
	// holder, and what was sent is kept as late. 404: the database does not know the try. Neither is sent again.
	PathFinish = "/tries/{id}/finish"
	PathFail   = "/tries/{id}/fail"

	// PathInputs is GET: the inputs of a job whose claim said inputs_omitted, as JSON, for members of the context.
	PathInputs = "/jobs/{id}/inputs"

	// HeaderFence carries the fence of the try that log, finish and fail are about, in decimal.
	HeaderFence = "Postern-Fence"
)

// Codes of problems that a runner acts on. Any other refusal with retryable = true is tried again.
const (
	CodeNotFound     = "not_found"
	CodeRunnerLive   = "runner_live"
	CodeRunnerPaused = "runner_paused"
	CodeStaleEpoch   = "stale_epoch"
	CodeStaleFence   = "stale_fence"
)

// Hold names a try under the fence with which it was claimed. It is written as a pair: ["<uuid>", 1764189390123].
type Hold struct {
	Try   string
	Fence int64
}

// MarshalJSON writes the pair.
func (h Hold) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.Try, h.Fence}) }

// UnmarshalJSON reads the pair.
func (h *Hold) UnmarshalJSON(b []byte) error {
	var pair []json.RawMessage
	if err := json.Unmarshal(b, &pair); err != nil || len(pair) != 2 {
		return fmt.Errorf("%.80s is no hold: want [try, fence]", b)
	}
	if err := json.Unmarshal(pair[0], &h.Try); err != nil {
		return fmt.Errorf("the try of a hold: %w", err)
	}
	if err := json.Unmarshal(pair[1], &h.Fence); err != nil {
		return fmt.Errorf("the fence of a hold: %w", err)
	}
	return nil
}

// RegisterRequest says which process this is and what it can execute.
type RegisterRequest struct {
	Instance    string            `json:"instance"`          // a UUID that the process made at its start
	Takeover    bool              `json:"takeover"`          // take the name from another instance that is alive
	ScriptTypes []string          `json:"script_types"`      // the types whose interpreter is here
	Missing     map[string]string `json:"missing,omitempty"` // by type that was asked for: which interpreter is missing
	Slots       int               `json:"slots"`             // how many scripts it executes at once
	Isolation   string            `json:"isolation"`         // strict, partial or off
	Version     string            `json:"version"`           // of the program
}

// RegisterAnswer is the epoch under which the process claims and renews from now on.
type RegisterAnswer struct {
	Epoch int64  `json:"epoch"` // a hybrid clock, greater than all before
	TTL   string `json:"ttl"`   // such as "15s": without a claim or renew for so long its tries go to others
}

// ClaimRequest asks for jobs.
type ClaimRequest struct {
	Epoch int64  `json:"epoch"`
	Max   int    `json:"max"`   // free slots, at least 1
	Holds []Hold `json:"holds"` // all that the runner holds as the request leaves; never null
}

// ClaimAnswer is the jobs that the runner holds from now on. A job that the server had handed out in an answer that was
// lost comes again, under the fence of then; the runner ignores it if it has it.
type ClaimAnswer struct {
	Jobs []Job  `json:"jobs"`
	Lost []Hold `json:"lost"` // in holds, but not its own: killed at once, nothing is reported
}

// RenewRequest tells what the runner holds.
type RenewRequest struct {
	Epoch int64  `json:"epoch"`
	Holds []Hold `json:"holds"` // as for claim
}

// RenewAnswer tells what the runner is to end.
type RenewAnswer struct {
	TTL  string `json:"ttl"`  // from the begin of this call, by the clock of the runner
	Lost []Hold `json:"lost"` // as for claim
	Stop []Hold `json:"stop"` // its own, to be stopped: TERM, 10 s, KILL, then fail with code stopped
}

// Job is one try of a job as a runner needs it.
type Job struct {
	Try        string            `json:"try"`   // a UUID; with Fence it names what is held
	Fence      int64             `json:"fence"` // a hybrid clock
	Job        string            `json:"job"`
	Flow       string            `json:"flow,omitempty"`
	Context    string            `json:"context"`
	Token      string            `json:"token"`   // <transaction>.<attempt>: the same again after a lapse
	Attempt    int               `json:"attempt"` // from 1
	ScriptType string            `json:"script_type"`
	Script     string            `json:"script"`
	Timeout    int               `json:"timeout"`                  // seconds, from the start of the script
	Env        map[string]string `json:"env"`                      // frozen: the flow's, the job's, POSTERN_*
	Inputs     json.RawMessage   `json:"inputs,omitempty"`         // results of its dependends: {"<ref>": {"k": "v"}}
	Omitted    bool              `json:"inputs_omitted,omitempty"` // they are large: to be read from PathInputs
	Network    bool              `json:"network"`                  // the script may use the network of the runner
}

// LogRequest is lines in the order of their numbers, at most 256 KiB in all.
type LogRequest struct {
	Lines []Line `json:"lines"`
}

// Line is one line, or a piece of one that is longer than 16 KiB.
type Line struct {
	N      int    `json:"n"`      // from 1 within a try and its fence, without gaps
	Stream string `json:"stream"` // stdout, stderr or runner
	Text   string `json:"text"`   // UTF-8 without its line feed; at most 16 KiB
}

// FinishRequest ends a try whose script did what it should: exit 0.
type FinishRequest struct {
	Result    map[string]string `json:"result"`
	Isolation string            `json:"isolation"` // under which the script ran
	Usage     Usage             `json:"usage"`
}

// FailRequest ends a try whose script did not. The codes are exit, signal, timed_out, stopped, memory, bad_result,
// no_interpreter, bad_environment and sandbox.
type FailRequest struct {
	Code      string            `json:"code"`
	Error     string            `json:"error"` // a sentence, with the last 4 KiB of stderr where the script ended badly
	ExitCode  *int              `json:"exit_code,omitempty"`
	Partial   map[string]string `json:"partial,omitempty"` // what POSTERN_RESULT held
	Final     bool              `json:"final"`             // a retry would not do better
	Isolation string            `json:"isolation"`
	Usage     Usage             `json:"usage"`
}

// Usage is what the script and all its descendants used.
type Usage struct {
	WallMS      int64 `json:"wall_ms"`
	CPUMS       int64 `json:"cpu_ms"`
	MaxRSSKiB   int64 `json:"max_rss_kib"`  // of the largest process
	OutputBytes int64 `json:"output_bytes"` // written to stdout and stderr, also what the log cut
}

// EndAnswer is what became of a finish or fail.
type EndAnswer struct {
	Changed bool `json:"changed"` // false: it had been recorded before
}
