package processor

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/fault"
)

// Actions says how the messages of a batch are executed (S4.2): all at once or not at all, or one after the
// other. Exactly one of the two is there.
type Actions struct {
	Atomic    *Subroutine `json:"atomic,omitempty"`
	NonAtomic *Subroutine `json:"non_atomic,omitempty"`
}

// Subroutine is a list of functions, one for each message. RetryLogic is that of an atomic one as a whole; in a
// non-atomic one each function has its own.
type Subroutine struct {
	Functions      []Function  `json:"functions"`
	RetryLogic     *RetryLogic `json:"retry_logic,omitempty"`
	ExpirationTime *int64      `json:"expiration_time,omitempty"` // seconds after a batch was sent
}

// Function is what a message may be, and where it goes.
type Function struct {
	Domain          string         `json:"domain"` // the processor's name
	MessageDetails  MessageDetails `json:"message_details"`
	ContractAddress string         `json:"contract_address"` // the type whose dispatcher executes it
	RetryLogic      *RetryLogic    `json:"retry_logic,omitempty"`
	Callback        *Confirmation  `json:"callback_confirmation,omitempty"`
}

// Confirmation is what an action waits for after it was executed: this message from this actor (S4.8).
type Confirmation struct {
	ContractAddress string          `json:"contract_address"`
	CallbackMessage json.RawMessage `json:"callback_message"`
	CallbackTimeout *int64          `json:"callback_timeout,omitempty"` // seconds after its execution
}

// callbackTimeout is how long an action waits for its callback where it does not say so itself (S4.5).
const callbackTimeout = 24 * time.Hour

// Deadline is when an action that was executed now counts as failed unless it has been confirmed.
func (c *Confirmation) Deadline(now time.Time) time.Time {
	if c.CallbackTimeout == nil {
		return now.Add(callbackTimeout)
	}
	return now.Add(time.Duration(*c.CallbackTimeout) * time.Second)
}

// RetryLogic says how often a failed execution is tried again, and how long to wait before.
type RetryLogic struct {
	Times    Times    `json:"times"`
	Interval Interval `json:"interval"`
}

// Times is how many retries follow the first execution; Amount nil is without limit.
type Times struct{ Amount *int64 }

// MarshalJSON writes "indefinitely" or {"amount": n}.
func (t Times) MarshalJSON() ([]byte, error) {
	if t.Amount == nil {
		return []byte(`"indefinitely"`), nil
	}
	return fmt.Appendf(nil, `{"amount":%d}`, *t.Amount), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (t *Times) UnmarshalJSON(text []byte) error {
	if string(text) == `"indefinitely"` {
		t.Amount = nil
		return nil
	}
	var v struct {
		Amount *int64 `json:"amount"`
	}
	if json.Unmarshal(text, &v) != nil || v.Amount == nil {
		return fmt.Errorf(`times %s: want "indefinitely" or {"amount": n}`, fault.Clip(string(text)))
	}
	t.Amount = v.Amount
	return nil
}

// Interval is a time or a number of blocks; exactly one of the two is there.
type Interval struct {
	Seconds *int64 `json:"seconds,omitempty"`
	Blocks  *int64 `json:"blocks,omitempty"`
}

func (i Interval) validate(pointer string) error {
	if (i.Seconds == nil) == (i.Blocks == nil) {
		return fault.At(pointer, `want either {"seconds": n} or {"blocks": n}`)
	}
	for name, n := range map[string]*int64{"seconds": i.Seconds, "blocks": i.Blocks} {
		if n != nil && (*n < 0 || *n > longest) {
			return fault.At(pointer+"/"+name, "%s %d: want 0 to %d", name, *n, int64(longest))
		}
	}
	return nil
}

// longest is the most seconds or blocks that anything lasts: a hundred years.
const longest = 100 * 366 * 86400

// Subroutine is the one that is there.
func (a Actions) Subroutine() *Subroutine {
	if a.Atomic != nil {
		return a.Atomic
	}
	return a.NonAtomic
}

// Functions are those of the subroutine.
func (a Actions) Functions() []Function {
	if s := a.Subroutine(); s != nil {
		return s.Functions
	}
	return nil
}

// Expires is when a batch that is sent now expires, nil for never.
func (a Actions) Expires(now time.Time) *time.Time {
	s := a.Subroutine()
	if s == nil || s.ExpirationTime == nil {
		return nil
	}
	at := now.Add(time.Duration(*s.ExpirationTime) * time.Second)
	return &at
}

// Retry is the logic that counts for the action at index; nil for none.
func (a Actions) Retry(index int) *RetryLogic {
	if a.Atomic != nil {
		return a.Atomic.RetryLogic
	}
	return a.NonAtomic.Functions[index].RetryLogic
}

// Confirmation is what the action at index waits for; nil for nothing.
func (a Actions) Confirmation(index int) *Confirmation {
	if a.Atomic != nil {
		return nil
	}
	return a.NonAtomic.Functions[index].Callback
}

// Contracts are the types of the functions, each once.
func (a Actions) Contracts() (list []string) {
	for _, f := range a.Functions() {
		if !slices.Contains(list, f.ContractAddress) {
			list = append(list, f.ContractAddress)
		}
	}
	return list
}

// Domain is the processor of all functions; Validate has seen that it is one.
func (a Actions) Domain() string { return a.Functions()[0].Domain }

// functionsMost is how many actions a batch may have.
const functionsMost = 100

// Validate refuses what cannot be executed, with the published texts where there are some (S4.11). Whether the
// dispatchers are there is not known here.
func (a Actions) Validate() error {
	const at = "/actions_config"
	if (a.Atomic == nil) == (a.NonAtomic == nil) {
		return fault.At(at, `actions_config: want either {"atomic": {...}} or {"non_atomic": {...}}`)
	}
	sub, name := a.Atomic, at+"/atomic"
	if sub == nil {
		sub, name = a.NonAtomic, at+"/non_atomic"
	}
	if len(sub.Functions) == 0 {
		return fault.At(name+"/functions", "Authorization must have at least one function")
	}
	if len(sub.Functions) > functionsMost {
		return fault.At(name+"/functions", "%d functions: want at most %d", len(sub.Functions), functionsMost)
	}
	if sub.ExpirationTime != nil && (*sub.ExpirationTime < 0 || *sub.ExpirationTime > longest) {
		return fault.At(name+"/expiration_time", "expiration_time %d: want seconds, 0 to %d", *sub.ExpirationTime, int64(longest))
	}
	if a.NonAtomic != nil && sub.RetryLogic != nil {
		return fault.At(name+"/retry_logic", "a non-atomic subroutine has none as a whole: give it to each function")
	}
	if err := sub.RetryLogic.validate(name + "/retry_logic"); err != nil {
		return err
	}
	for i, f := range sub.Functions {
		if err := a.function(f, fmt.Sprintf("%s/functions/%d", name, i)); err != nil {
			return err
		}
		if f.Domain != sub.Functions[0].Domain {
			return fault.At(fmt.Sprintf("%s/functions/%d/domain", name, i), "All functions in an authorization must be executed in the same domain")
		}
	}
	return nil
}

func (a Actions) function(f Function, at string) error {
	if f.Domain == "" {
		return fault.At(at+"/domain", "domain is missing: want the name of a processor")
	}
	if f.ContractAddress == "" {
		return fault.At(at+"/contract_address", "contract_address is missing: want a type that has a dispatcher")
	}
	if a.Atomic != nil && f.RetryLogic != nil {
		return fault.At(at+"/retry_logic", "an atomic batch is retried as a whole: give it to the subroutine")
	}
	if a.Atomic != nil && f.Callback != nil {
		return fault.At(at+"/callback_confirmation", "the actions of an atomic batch are executed at once: none can wait for a callback")
	}
	if f.Callback != nil && f.Callback.ContractAddress == "" {
		return fault.At(at+"/callback_confirmation/contract_address", "contract_address is missing: want the actor that confirms")
	}
	if f.Callback != nil && !json.Valid(f.Callback.CallbackMessage) {
		return fault.At(at+"/callback_confirmation/callback_message", "callback_message is missing: want what the callback must say")
	}
	if f.Callback != nil && f.Callback.CallbackTimeout != nil && (*f.Callback.CallbackTimeout < 1 || *f.Callback.CallbackTimeout > longest) {
		return fault.At(at+"/callback_confirmation/callback_timeout", "callback_timeout %d: want seconds, 1 to %d", *f.Callback.CallbackTimeout, int64(longest))
	}
	if err := f.RetryLogic.validate(at + "/retry_logic"); err != nil {
		return err
	}
	return f.MessageDetails.validate(at + "/message_details")
}

func (r *RetryLogic) validate(at string) error {
	if r == nil {
		return nil
	}
	if n := r.Times.Amount; n != nil && *n < 0 {
		return fault.At(at+"/times/amount", "amount %d: want 0 or more", *n)
	}
	return r.Interval.validate(at + "/interval")
}

// Same says whether two JSON texts mean the same: 100, 1e2 and 100.0 are one number, as they are to PostgreSQL, which
// keeps what a configuration says in a spelling of its own.
func Same(a, b json.RawMessage) bool {
	v, err := decoded(a)
	w, err2 := decoded(b)
	if err != nil || err2 != nil {
		return bytes.Equal(a, b)
	}
	return equal(v, w)
}

func decoded(text json.RawMessage) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return v, d.Decode(&v)
}

func equal(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		b, ok := b.(json.Number)
		return ok && value(a) == value(b)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, equal)
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, equal)
	}
	return a == b
}

// value is a number exactly: its sign, its digits without zeros at both ends, and the power of ten.
func value(n json.Number) string {
	digits, exponent, _ := strings.Cut(strings.ToLower(string(n)), "e")
	digits, negative := strings.CutPrefix(digits, "-")
	whole, fraction, _ := strings.Cut(digits, ".")
	power, err := strconv.ParseInt(cmp.Or(exponent, "0"), 10, 32)
	if err != nil { // no column takes it
		return string(n)
	}
	power -= int64(len(fraction))
	all := strings.TrimLeft(whole+fraction, "0")
	digits = strings.TrimRight(all, "0")
	if digits == "" {
		return "0"
	}
	return fmt.Sprintf("%v %s e%d", negative, digits, power+int64(len(all)-len(digits)))
}
