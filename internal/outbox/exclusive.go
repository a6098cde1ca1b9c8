package outbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/postern-dev/postern/internal/fault"
)

// Exclusive says which transactions exclude each other (S2.20): none, those of the type, those of the type with equal
// values in a field ("field:<pointer>"), or those of all types of a group with equal values ("group:<name>:<pointer>").
// JSON has the last one as {"group": name, "by": pointer}.
type Exclusive string

// ExclusiveForms says how JSON has it.
const ExclusiveForms = `"none", "type", "field:<JSON pointer>" or {"group": name, "by": JSON pointer}`

type exclusiveGroup struct {
	Group string `json:"group"`
	By    string `json:"by"`
}

// Group is the name of the group, "" without one.
func (e Exclusive) Group() string {
	name, grouped := strings.CutPrefix(string(e), "group:")
	if !grouped {
		return ""
	}
	name, _, _ = strings.Cut(name, ":")
	return name
}

// by is the pointer into data.
func (e Exclusive) by() string {
	rest := strings.TrimPrefix(string(e), "field:")
	if name := e.Group(); name != "" {
		rest = strings.TrimPrefix(string(e), "group:"+name+":")
	}
	return rest
}

// Check refuses a pointer into data that is none.
func (e Exclusive) Check() error {
	switch e {
	case "", "none", "type":
		return nil
	}
	return Pointer(e.by()).Check()
}

// Prefix begins the name of each lane of the type: the group, if there is one, and the pointer. Lanes of other settings
// have other prefixes, but for those of all of a type, which have no name.
func (e Exclusive) Prefix() string { return e.Group() + e.by() + " " }

// MarshalJSON writes a string, or an object for a group.
func (e Exclusive) MarshalJSON() ([]byte, error) {
	if name := e.Group(); name != "" {
		return json.Marshal(exclusiveGroup{name, e.by()})
	}
	return json.Marshal(string(e))
}

// UnmarshalJSON reads what MarshalJSON writes.
func (e *Exclusive) UnmarshalJSON(text []byte) error {
	want := fmt.Errorf("exclusive %s: want %s", fault.Clip(string(text)), ExclusiveForms)
	var s string
	if json.Unmarshal(text, &s) == nil {
		if strings.HasPrefix(s, "group:") {
			return want
		}
		*e = Exclusive(s)
		return nil
	}
	var g exclusiveGroup
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if !json.Valid(text) || d.Decode(&g) != nil || g.Group == "" || g.By == "" || strings.Contains(g.Group, ":") {
		return want
	}
	*e = Exclusive("group:" + g.Group + ":" + g.By)
	return nil
}
