package flow_test

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
)

// What a runner tells as a result is refused as bad input, or is kept as an object of strings, and read again it is the
// same.
func FuzzCheckResult(f *testing.F) {
	for _, s := range []string{``, `null`, `{}`, `{"n": "3"}`, `{"n": 3}`, `{"n": null}`, `[]`, `{"a": "1", "a": "2"}`,
		`{"a": "\u0000"}`, `{"a": "\ud800"}`, `{"a": "<>&"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		kept, err := flow.CheckResult("result", raw)
		if err != nil {
			if k := fault.As(err).Kind; k != fault.Invalid {
				t.Errorf("%s is %v", err, k)
			}
			return
		}
		var values map[string]string
		if err := json.Unmarshal(kept, &values); err != nil {
			t.Errorf("%s is kept: %v", kept, err)
		}
		if again, err := flow.CheckResult("result", kept); len(kept) <= flow.MaxResult &&
			(err != nil || string(again) != string(kept)) {
			t.Errorf("%s is %s (%v) when it is read again", kept, again, err)
		}
	})
}

// The data of a job that came by SQL or as a transaction can be run, or its failure has a text that can be stored.
func FuzzCarriedIn(f *testing.F) {
	for _, s := range []string{`{}`, `null`, `{"script": "echo"}`, `{"script": ""}`, `{"script": "a", "timeout": -1}`,
		`{"script": "a", "timeout": 9223372036854775807}`, `{"script": "a", "env_vars": {"A": null}}`,
		`{"script": "a", "Env_Vars": {}}`, `{"script": "a", "topic": "<b>"}`, `{"script": "\u0000"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, why := flow.CarriedIn(data)
		switch {
		case !utf8.ValidString(why) || len(why) > 2000:
			t.Errorf("it fails by %q", why)
		case why != "":
			if s.Timeout <= 0 {
				t.Errorf("it has the timeout %s", s.Timeout)
			}
		case s.Validate("") != nil:
			t.Errorf("%+v can be run, and is no job: %v", s, s.Validate(""))
		}
	})
}
