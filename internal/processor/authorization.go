package processor

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/postern-dev/postern/internal/fault"
)

// Authorization lets actors send batches of one shape to one processor (S4.11).
type Authorization struct {
	Label         string     `json:"label"`
	Mode          Mode       `json:"mode"`
	NotBefore     *time.Time `json:"not_before,omitempty"`
	Duration      Duration   `json:"duration"`
	MaxConcurrent int        `json:"max_concurrent_executions"`
	Priority      Priority   `json:"priority"`
	Actions       Actions    `json:"actions_config"`
}

// DefaultAuthorization is one with what holds where nothing else is said: Med, one at a time, for ever.
func DefaultAuthorization() Authorization {
	return Authorization{MaxConcurrent: 1, Priority: Med}
}

// Mode says who may send. The zero value lets no actor send.
type Mode struct {
	Permissionless bool
	Limits         map[string]int64 // with a limit of calls, by actor
	Actors         []string         // without one
}

type modeJSON struct {
	WithCallLimit    map[string]int64 `json:"with_call_limit,omitempty"`
	WithoutCallLimit []string         `json:"without_call_limit,omitempty"`
}

// MarshalJSON writes "permissionless" or {"permissioned": {...}}.
func (m Mode) MarshalJSON() ([]byte, error) {
	if m.Permissionless {
		return []byte(`"permissionless"`), nil
	}
	return json.Marshal(map[string]modeJSON{"permissioned": {m.Limits, m.Actors}})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (m *Mode) UnmarshalJSON(text []byte) error {
	if string(text) == `"permissionless"` {
		*m = Mode{Permissionless: true}
		return nil
	}
	var v struct {
		Permissioned *modeJSON `json:"permissioned"`
	}
	if json.Unmarshal(text, &v) != nil || v.Permissioned == nil {
		return fmt.Errorf(`mode %s: want "permissionless" or {"permissioned": {...}}`, fault.Clip(string(text)))
	}
	*m = Mode{Limits: v.Permissioned.WithCallLimit, Actors: v.Permissioned.WithoutCallLimit}
	return nil
}

// Duration is how long an authorization holds from when it was made; the zero value is for ever.
type Duration struct{ Interval }

// Is says whether d is as long as another duration.
func (d Duration) Is(o Duration) bool {
	same := func(a, b *int64) bool { return a == b || a != nil && b != nil && *a == *b }
	return same(d.Seconds, o.Seconds) && same(d.Blocks, o.Blocks)
}

// MarshalJSON writes "forever", {"seconds": n} or {"blocks": n}.
func (d Duration) MarshalJSON() ([]byte, error) {
	if d == (Duration{}) {
		return []byte(`"forever"`), nil
	}
	return json.Marshal(d.Interval)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (d *Duration) UnmarshalJSON(text []byte) error {
	if string(text) == `"forever"` {
		*d = Duration{}
		return nil
	}
	var v Interval
	if json.Unmarshal(text, &v) != nil || v == (Interval{}) {
		return fmt.Errorf(`duration %s: want "forever", {"seconds": n} or {"blocks": n}`, fault.Clip(string(text)))
	}
	d.Interval = v
	return nil
}

// labelMost is how many characters a label has (S4.11).
const labelMost = 44

// Validate refuses what cannot be an authorization, with the published texts (S4.11).
func (a Authorization) Validate() error {
	if a.Label == "" {
		return fault.At("/label", "Authorization must have a label")
	}
	if n := utf8.RuneCountInString(a.Label); n > labelMost {
		return fault.At("/label", "label %q has %d characters: want at most %d", fault.Clip(a.Label), n, labelMost)
	}
	if err := a.Actions.Validate(); err != nil {
		return err
	}
	if a.Mode.Permissionless && a.Priority == High {
		return fault.At("/priority", "Permissionless authorizations can't have high priority")
	}
	if !a.Mode.Permissionless && (len(a.Mode.Limits) > 0) == (len(a.Mode.Actors) > 0) {
		return fault.At("/mode", `mode: want "permissionless", or actors with_call_limit, or actors without_call_limit`)
	}
	for _, actor := range slices.Sorted(maps.Keys(a.Mode.Limits)) {
		if n := a.Mode.Limits[actor]; n < 1 {
			return fault.At("/mode/permissioned/with_call_limit",
				"actor %q has %d calls: want 1 or more", fault.Clip(actor), n)
		}
	}
	if a.MaxConcurrent < 1 || a.MaxConcurrent > 100000 {
		return fault.At("/max_concurrent_executions", "max_concurrent_executions %d: want 1 to 100000", a.MaxConcurrent)
	}
	if a.Duration != (Duration{}) {
		return a.Duration.validate("/duration")
	}
	return nil
}

// Use is what has become of an authorization: what a decision about a message knows besides it.
type Use struct {
	Enabled      bool
	EndsAt       *time.Time // from its duration
	EndsAtHeight *int64
	Running      int   // batches that have not ended
	Spent        int64 // calls of this actor that are held or burned
}

// Ends is when an authorization that is made now ends; both nil for never.
func (a Authorization) Ends(now time.Time, height int64) (at *time.Time, atHeight *int64) {
	if n := a.Duration.Seconds; n != nil {
		t := now.Add(time.Duration(*n) * time.Second)
		at = &t
	}
	if n := a.Duration.Blocks; n != nil {
		h := height + *n
		atHeight = &h
	}
	return at, atHeight
}

// Limited says whether an actor's calls are counted.
func (a Authorization) Limited() bool { return len(a.Mode.Limits) > 0 }

// MaySend refuses a batch that may not be sent, with the first of the rules of S4.12 that it breaks, and its text.
func (a Authorization) MaySend(actor string, messages []Message, s Use, f Facts) error {
	forbidden := func(text string) error { return fault.New(fault.Forbidden, "forbidden", "%s", text) }
	switch {
	case !s.Enabled:
		return forbidden("The authorization is not enabled")
	case a.NotBefore != nil && f.Now.Before(*a.NotBefore):
		return forbidden("The authorization functions cant be executed yet")
	case s.EndsAt != nil && !f.Now.Before(*s.EndsAt), s.EndsAtHeight != nil && f.Height >= *s.EndsAtHeight:
		return forbidden("The authorization is expired")
	}
	const stranger = "This address is not allowed to execute this action"
	limit, known := a.Mode.Limits[actor]
	if !a.Mode.Permissionless && !known && !slices.Contains(a.Mode.Actors, actor) {
		return forbidden(stranger)
	}
	if known && s.Spent >= limit {
		return fault.New(fault.Conflict, "call_limit", "%s", stranger).With("limit", limit)
	}
	if err := CheckMessages(messages, a.Actions.Functions()); err != nil {
		return err
	}
	if s.Running >= a.MaxConcurrent {
		return fault.New(fault.Conflict, "concurrency_limit",
			"The authorization has reached its max concurrent executions").
			With("max_concurrent_executions", a.MaxConcurrent)
	}
	return nil
}

// NotOwner is the refusal of what only the owner of a processor, or an authorization, may do (S4.9).
func NotOwner() error {
	return fault.New(fault.Forbidden, "forbidden", "Only authorization module can execute this action")
}
