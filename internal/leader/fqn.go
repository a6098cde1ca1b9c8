package leader

import (
	"regexp"
	"strconv"

	"github.com/postern-dev/postern/internal/fault"
)

// FQN is the fully qualified name of a tool: domain.name@version (S1.8).
type FQN struct {
	Domain  string // at least two parts
	Name    string
	Version uint32 // from 1
}

// A part has two characters or more and begins with a letter.
var fqnForm = regexp.MustCompile(`^([a-z][a-z0-9_-]+(?:\.[a-z][a-z0-9_-]+)+)\.([a-z][a-z0-9_-]+)@([0-9]+)$`)

// fqnMax is the longest name that fits into a path of the API.
const fqnMax = 200

// ParseFQN reads a tool's name. Invalid with the text that S1.8 fixes: not the form, a version that is
// beyond 32 bits, or version 0.
func ParseFQN(s string) (FQN, error) {
	m := fqnForm.FindStringSubmatch(s)
	if m == nil || len(s) > fqnMax {
		return FQN{}, fault.At("/fqn", "Invalid tool FQN format")
	}
	v, err := strconv.ParseUint(m[3], 10, 32)
	switch {
	case err != nil:
		return FQN{}, fault.At("/fqn", "Tool version too large")
	case v == 0:
		return FQN{}, fault.At("/fqn", "Tool version cannot be zero")
	}
	return FQN{Domain: m[1], Name: m[2], Version: uint32(v)}, nil
}

// String is the one spelling of the name: a version has no leading zeros.
func (f FQN) String() string {
	return f.Domain + "." + f.Name + "@" + strconv.FormatUint(uint64(f.Version), 10)
}
