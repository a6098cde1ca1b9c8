package httpapi

import (
	"encoding/json"
	"regexp"

	"github.com/danielgtaylor/huma/v2"

	"github.com/postern-dev/postern/internal/fault"
)

// name is a name that people give to a thing they configure: up to 200 characters that need no escaping in a path.
type name string

// uidName is the client's own name of a transaction: the same alphabet, up to 255.
type uidName string

// The length is no part of the pattern: each of hundreds of schemas compiles its own, and a counted repetition made a
// third of the start of a process.
const (
	namePattern = `^[A-Za-z0-9][A-Za-z0-9._:@-]*$`
	nameIs      = "1 to 200 of A-Z a-z 0-9 . _ : @ -, the first a letter or digit"
	uidIs       = "1 to 255 of A-Z a-z 0-9 . _ : @ -, the first a letter or digit"
)

var (
	nameLongest, uidLongest = 200, 255
	nameRegexp              = regexp.MustCompile(namePattern)
)

// isName and isUID say whether a text is a name, or a uid, where no schema has looked at it.
func isName(s string) bool { return len(s) <= nameLongest && nameRegexp.MatchString(s) }
func isUID(s string) bool  { return len(s) <= uidLongest && nameRegexp.MatchString(s) }

// Schema documents and validates a name.
func (name) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Pattern: namePattern, MaxLength: &nameLongest,
		PatternDescription: nameIs, Examples: []any{"claim-7f3"}}
}

// Schema documents and validates a uid.
func (uidName) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Pattern: namePattern, MaxLength: &uidLongest, PatternDescription: uidIs,
		Examples: []any{"order-4711"}}
}

// toolName is the name of a tool as people write it. It has no pattern: one that is none is refused with the text that
// S1.8 fixes.
type toolName string

// Schema documents the name of a tool.
func (toolName) Schema(huma.Registry) *huma.Schema {
	most := 1000
	return &huma.Schema{Type: huma.TypeString, MaxLength: &most, Examples: []any{"xyz.taluslabs.example@1"}}
}

// queueName is a name or null: null and absent mean unordered.
type queueName string

// Schema documents and validates the queue of a transaction.
func (queueName) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Nullable: true, Pattern: namePattern, MaxLength: &nameLongest,
		PatternDescription: nameIs, Examples: []any{"claim-7f3"},
		Description: "The ordering key; null or absent for unordered work."}
}

// optionalQueue tells a queue that is absent from one that is null.
type optionalQueue struct {
	given bool
	name  string
}

// UnmarshalJSON reads a name or null; it is not called for what is absent.
func (q *optionalQueue) UnmarshalJSON(b []byte) error {
	q.given, q.name = true, ""
	return json.Unmarshal(b, &q.name)
}

// Schema is that of the queue of a transaction.
func (optionalQueue) Schema(r huma.Registry) *huma.Schema { return queueName("").Schema(r) }

// ofPath refuses a body that names, in field, something other than its path does. It need not name anything.
func ofPath(field, named, path string) error {
	if named == "" || named == path {
		return nil
	}
	return fault.At("/"+field, "%s %q is not %q of the path: leave it out", field, fault.Clip(named), path)
}
