package outbox

import (
	"slices"
	"testing"
)

func TestAPointerIsThatOfRFC6901(t *testing.T) {
	for p, want := range map[Pointer][]string{
		"":           nil,
		"/":          {""},
		"/a/0":       {"a", "0"},
		"/a~1b/~0c":  {"a/b", "~c"},
		"/~01":       {"~1"},
		"/a~0~1/b c": {"a~/", "b c"},
	} {
		if err := p.Check(); err != nil || !slices.Equal(p.Steps(), want) {
			t.Errorf("%q: %q, %v", p, p.Steps(), err)
		}
	}
	for _, p := range []Pointer{"a", "~0", "/a~2", "/a~", "/~/b", "/~~0", "/a~\u00e9"} {
		if p.Check() == nil {
			t.Errorf("%q is taken for a pointer", p)
		}
	}
}
