package outbox

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/postern-dev/postern/internal/fault"
)

// Pointer is a JSON pointer (RFC 6901), as settings have it; "" is one to the whole document.
type Pointer string

// wrongTilde is a ~ that stands for nothing, with what follows it.
var wrongTilde = regexp.MustCompile(`~([^01]|$)`)

// Check refuses what is no pointer.
func (p Pointer) Check() error {
	if p != "" && p[0] != '/' {
		return fmt.Errorf("want a JSON pointer, which begins with /, not %q", fault.Clip(string(p)))
	}
	if at := wrongTilde.FindString(string(p)); at != "" {
		return fmt.Errorf("%q in the JSON pointer %q stands for nothing: want ~0 for ~ and ~1 for /",
			at, fault.Clip(string(p)))
	}
	return nil
}

// unescaped gives the characters of a step their own places.
var unescaped = strings.NewReplacer("~1", "/", "~0", "~")

// Steps are the names of members and the numbers of elements on the way from the root.
func (p Pointer) Steps() []string {
	if p == "" {
		return nil
	}
	list := strings.Split(string(p[1:]), "/")
	for i, step := range list {
		list[i] = unescaped.Replace(step)
	}
	return list
}
