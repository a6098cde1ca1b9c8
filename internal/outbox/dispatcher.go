package outbox

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Duration is a time.Duration that JSON writes as "90s" or "24h".
type Duration time.Duration

// MarshalJSON writes d as Go writes durations.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// String is the duration as people write it: 10m and 24h, not 10m0s and 24h0m0s.
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// UnmarshalJSON reads "90s"; a bare number is refused, since its unit would be a guess.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("duration %s: want a string such as \"90s\"", b)
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("duration %q: want a string such as \"90s\"", s)
	}
	*d = Duration(v)
	return nil
}

// Dispatcher holds the settings of one transaction type.
type Dispatcher struct {
	Type        string    `json:"type"`
	WorkerURL   string    `json:"worker_url"`
	Pool        string    `json:"pool,omitempty"`      // senders; "" = the type needs none
	Slots       int       `json:"slots"`               // calls in flight per node, for types without pool
	Exclusive   Exclusive `json:"exclusive,omitempty"` // (S2.20)
	Timeouts    Timeouts  `json:"timeouts"`
	Retry       Retry     `json:"retry"`
	Fee         Fee       `json:"fee"`
	Inclusion   Inclusion `json:"inclusion"`
	Idempotent  bool      `json:"idempotent"`  // the same token may be sent again unasked (S2.10)
	Breaker     int       `json:"breaker"`     // so many queues in a row close the gate; 0: none
	Unknown     Unknown   `json:"unknown"`     // the fate of an outcome that no worker can tell (S2.10)
	Replaceable bool      `json:"replaceable"` // a retry may replace what is in the pool (S2.11)
	// PostedBy is who may post to it, at each door; "" is Anyone.
	PostedBy Poster `json:"posted_by,omitempty"`
	// Capabilities are what its worker says of itself besides: "atomic" executes a list of messages all or not at all
	// (S4.6), and "no_status" cannot be asked (S2.10).
	Capabilities []string `json:"capabilities,omitempty"`
	// Schema is what data must fit, a JSON Schema of draft 2020-12; nil: anything.
	Schema json.RawMessage `json:"schema,omitempty"`
	// Secret signs what its worker is sent. Where a dispatcher is put, nil leaves the one that there is, and empty
	// takes it away.
	Secret []byte `json:"-"`
}

// Unknown is the fate of a transaction with an unknown outcome that can neither be asked about nor sent again.
type Unknown string

const (
	UnknownHold       Unknown = "hold"       // it waits for an operator, who can find out
	UnknownUnresolved Unknown = "unresolved" // it ends UNRESOLVED
)

// Atomic says whether the worker executes a list of messages all or not at all.
func (d *Dispatcher) Atomic() bool { return slices.Contains(d.Capabilities, "atomic") }

// NoStatus is what a type is given whose worker has no /status, in the words of the messages that advise it.
const NoStatus = "the capability no_status"

// Mute says whether the worker has no /status, so that it is never asked what came of a call.
func (d *Dispatcher) Mute() bool { return slices.Contains(d.Capabilities, "no_status") }

// Unasked is what counts as the answer to a question that a mute worker is not asked.
func Unasked() Status {
	const message = "its type says that the worker has no /status (capability no_status)"
	return Status{State: StatusUnsupported, Message: message}
}

// Timeouts of calls to the worker.
type Timeouts struct {
	Dispatch Duration `json:"dispatch"`
}

// Retry says how often and when a failed transaction goes out again (S2.9).
type Retry struct {
	MaxRetries *int     `json:"max_retries,omitempty"` // nil: the worker is asked, else DefaultMaxRetries
	Kind       string   `json:"kind"`                  // "exponential" with full jitter, or "fixed"
	Initial    Duration `json:"initial"`
	Factor     float64  `json:"factor,omitempty"`
	Cap        Duration `json:"cap,omitempty"` // 0: no request has said one, see Backoff
	OnFailed   bool     `json:"on_failed"`     // retry what failed in a block
}

// Fee says what a retry offers more than the attempt before it (S2.9).
type Fee struct {
	Kind        string `json:"kind"`    // "percent", "step" or "none"
	Initial     string `json:"initial"` // digits; "" = the worker's own
	BumpPercent int    `json:"bump_percent"`
	Step        string `json:"step,omitempty"` // digits, for kind step
	CapPercent  int    `json:"cap_percent"`    // of the first fee
}

// Inclusion says how a submitted transaction is watched (S2.11).
type Inclusion struct {
	PollEvery     Duration `json:"poll_every"`
	Deadline      Duration `json:"deadline"`
	UnknownGrace  Duration `json:"unknown_grace"`
	Confirmations int      `json:"confirmations"`
}

// DefaultDispatcher returns the settings that a dispatcher has where nothing else is said (S2.16).
func DefaultDispatcher() Dispatcher {
	return Dispatcher{
		Slots:     64,
		Exclusive: "none",
		Timeouts:  Timeouts{Dispatch: Duration(10 * time.Minute)},
		Retry:     Retry{Kind: "exponential", Initial: Duration(15 * time.Second), Factor: 2, OnFailed: true},
		Fee:       Fee{Kind: "percent", BumpPercent: 10, CapPercent: 200},
		Inclusion: Inclusion{PollEvery: Duration(10 * time.Second), Deadline: Duration(10000 * time.Second),
			UnknownGrace: Duration(5 * time.Minute), Confirmations: 1},
		Breaker:     5,
		Unknown:     UnknownHold,
		Replaceable: true,
		PostedBy:    Anyone,
	}
}

// Backoff is retry with the cap that holds. One that no request has said follows from the pool, as it is now: a type
// with a pool gives up within 4 minutes, since its sender is held meanwhile; others may wait for a worker, or for the
// systems behind it, for one hour and a half. It is no less than the first delay. Fixed delays look at neither factor
// nor cap.
func (d *Dispatcher) Backoff() Retry {
	r := d.Retry
	switch {
	case r.Kind == "fixed":
		r.Factor, r.Cap = 0, 0
	case r.Cap == 0:
		r.Cap = Duration(20 * time.Minute)
		if d.Pool != "" {
			r.Cap = Duration(time.Minute)
		}
		r.Cap = max(r.Cap, r.Initial)
	}
	return r
}

// DefaultMaxRetries counts where neither transaction, dispatcher nor worker names a number (S2.9).
func (d *Dispatcher) DefaultMaxRetries() int {
	if d.Pool != "" {
		return 5
	}
	return 10
}

// Longest is the longest delay before retry n, counted from 1: delays are drawn from below it, except fixed ones, which
// look at neither factor nor cap. A cap of 0 is none.
func (r Retry) Longest(n int) time.Duration {
	if r.Kind == "fixed" {
		return time.Duration(r.Initial)
	}
	most := float64(r.Initial) * math.Pow(r.Factor, float64(max(n, 1)-1))
	limit := float64(math.MaxInt64 / 2)
	if r.Cap > 0 {
		limit = float64(r.Cap)
	}
	if !(most <= limit) { // also NaN and infinity
		most = limit
	}
	return time.Duration(most)
}

// Most is how long the delays before n retries are together, at most.
func (r Retry) Most(n int) (sum time.Duration) {
	for i := 1; i <= n; i++ {
		next := r.Longest(i)
		if sum > math.MaxInt64-next {
			return math.MaxInt64
		}
		sum += next
	}
	return sum
}

// ExclusiveValue returns what a transaction with this data excludes others by, and whether it excludes
// any (S2.20): "" for the whole type, else the JSON text of the field, "null" where it is absent. The name of a lane is
// in an index, which refuses a long one: the digest stands for a value of more than 500 bytes.
func (d *Dispatcher) ExclusiveValue(data json.RawMessage) (string, bool) {
	switch {
	case d.Exclusive == "" || d.Exclusive == "none":
		return "", false
	case d.Exclusive == "type":
		return "", true
	}
	value := pointer(data, d.Exclusive.by())
	if len(value) > 500 {
		value = fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(value)))
	}
	return value, true
}

// pointer returns the JSON text that an RFC 6901 pointer names, "null" where it names nothing. A value has one text,
// however it was written: it is compared with what the database has read back.
func pointer(data json.RawMessage, ptr string) string {
	for _, part := range Pointer(ptr).Steps() {
		var object map[string]json.RawMessage
		var array []json.RawMessage
		if json.Unmarshal(data, &object) == nil {
			data = object[part]
		} else if i, err := strconv.Atoi(part); err == nil &&
			json.Unmarshal(data, &array) == nil && i >= 0 && i < len(array) {
			data = array[i]
		} else {
			return "null"
		}
	}
	text, err := json.Marshal(Canonical(data))
	if err != nil {
		return "null"
	}
	return string(text)
}

// HasHooks says whether the worker can be told how a transaction ended; the built-in ones cannot.
func (d *Dispatcher) HasHooks() bool {
	for _, builtIn := range []string{"noop:", "tool:", "run:", PeerURL} {
		if strings.HasPrefix(d.WorkerURL, builtIn) {
			return false
		}
	}
	return true
}
