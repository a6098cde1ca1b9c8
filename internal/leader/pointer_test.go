package leader_test

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
)

// A place of a map, and one in the URL of an input, is a JSON pointer.
func TestAPlaceOfASourceIsAJSONPointer(t *testing.T) {
	t.Parallel()
	for field, set := range map[string]func(m *leader.SourceMap){
		"items":  func(m *leader.SourceMap) { m.Items = "/events~2" },
		"id":     func(m *leader.SourceMap) { m.ID = "/i~d" },
		"cursor": func(m *leader.SourceMap) { m.Cursor = "/c~" },
		"more":   func(m *leader.SourceMap) { m.More = "/~m" },
		"digest": func(m *leader.SourceMap) { m.Digest = "/~~" },
		"fqn":    func(m *leader.SourceMap) { m.FQN = "/tool~x" },
		"input":  func(m *leader.SourceMap) { m.Input = "/in~5" },
	} {
		s := paged()
		set(&s.Map)
		err := s.Validate()
		if err == nil || fault.As(err).Fields[0].Pointer != "/map/"+field ||
			!strings.Contains(err.Error(), "~0 for ~") {
			t.Errorf("%s: %v", field, err)
		}
	}
	s := paged()
	s.Map.Input = "https://inputs.example/{/a~3}"
	if err := s.Validate(); err == nil || fault.As(err).Fields[0].Pointer != "/map/input" {
		t.Errorf("%v", err)
	}
	s.Map.Input = "https://inputs.example/{/a~1b}"
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
}
