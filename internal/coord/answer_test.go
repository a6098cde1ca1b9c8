package coord

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/strict"
)

// What the service of a domain answers and the door of another node would not take is refused here, with its place.
func TestAnAnswerIsWhatEachDoorTakes(t *testing.T) {
	d := New("tok", "a", Defaults("a", "b"), 1)
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct{ kind, body, says string }{
		{"assemble", `{"result": "OK", "assembled": {"a": 1, "a": 2}}`, `the key "a" occurs twice at /assembled`},
		{"assemble", `{"result": "OK", "outputs": [{"id": "s", "data": 1e400}]}`, "beyond 1e308 at /outputs/0/data"},
		{"assemble", `{"result": "OK", "assembled": ` + strings.Repeat("9", 400) + `}`, "beyond 1e308 at /assembled"},
		{"assemble", `{"result": "OK", "assembled": ` + deep(60) + `}`, "nested deeper than 60"},
		{"sign", `{"signature": {"a": 1, "a": 2}}`, `the key "a" occurs twice at /signature`},
		{"endorse", `{"endorsement": ` + deep(60) + `}`, "nested deeper than 60"},
		{"endorse", `{"endorsement": ` + deep(59) + `}`, ""},
		{"assemble", `{"result": "OK", "assembled": ` + deep(59) + `}`, ""},
	} {
		_, kept, err := d.ReadAnswer(&Call{Key: "k", Kind: c.kind}, []byte(c.body), nil)
		if c.says != "" {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%.100s: %v, want %q", c.body, err, c.says)
			}
			continue
		}
		said := map[string]any{"given": []any{map[string]any{"name": "n", "data": kept}}}
		if c.kind == "assemble" {
			said = map[string]any{"made": kept}
		}
		call, broken := json.Marshal(map[string]any{"messages": []any{said}})
		if err != nil || broken != nil || strict.Check(call, 64) != nil {
			t.Errorf("%.100s: %v, %v, and a door says %v", c.body, err, broken, strict.Check(call, 64))
		}
	}
}
