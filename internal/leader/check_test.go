package leader_test

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/leader"
)

// A value that does not fit is told by its place and the rule alone. The value is part of a body, and not every reader
// of the reason why a transaction failed may see the body.
func TestWhatDoesNotFitIsNotQuoted(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{`"pattern": "^x"`, `"const": 1`, `"enum": [1, 2]`, `"enum": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]`, `"maxLength": 1`, `"type": "integer"`,
		`"minimum": 1e9`, `"maximum": 1`, `"exclusiveMinimum": 1e9`, `"exclusiveMaximum": 1`, `"multipleOf": 5`, `"maxItems": 0`, `"uniqueItems": true`, `"not": {}`,
		`"items": {"enum": ["b"]}`, `"prefixItems": [false]`, `"contains": false`, `"oneOf": [true, true]`, `"anyOf": [false]`} {
		for value, secret := range map[string]string{`"4711-secret"`: "4711", `471147`: "4711", `[47114711, 47114711]`: "4711", `4711` + strings.Repeat("0", 1000): "4711"} {
			s, err := leader.NewSchema("", []byte(`{"properties": {"a": {`+rule+`}}}`))
			if err != nil {
				t.Fatal(rule, err)
			}
			if err := s.Check([]byte(`{"a": ` + value + `}`)); err != nil && (strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), "/a")) {
				t.Errorf("%s: %s", rule, err)
			}
		}
	}
}
