//go:build twin

package twin

import (
	"fmt"
	"os"
	"strings"
)

var planted = os.Getenv("POSTERN_TWIN")

// Planted says whether the fault of a name is planted.
func Planted(name string) bool { return planted == name }

// SQL returns the text of a statement, with one place rewritten where the fault of a name is planted. The place has to
// be there once, planted or not, so that the first program with the tag finds a rewrite that does not fit any more.
func SQL(name, text, from, to string) string {
	if n := strings.Count(text, from); n != 1 {
		panic(fmt.Sprintf("twin %s: %q is %d times in %q, want once", name, from, n, text))
	}
	if !Planted(name) {
		return text
	}
	return strings.Replace(text, from, to, 1)
}
