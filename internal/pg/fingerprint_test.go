package pg_test

import (
	"encoding/json"
	"testing"

	"github.com/postern-dev/postern/internal/pg"
)

func TestTheFingerprintKnowsNumbersByTheirValue(t *testing.T) {
	t.Parallel()
	print := func(data string) string {
		return string((&pg.Submission{Type: "T", Data: json.RawMessage(data)}).Fingerprint())
	}
	for _, same := range [][]string{
		{`1.50`, `15e-1`, `0.015E+2`, `1.5`, ` 1.5000 `},
		{`0`, `-0`, `0.00`, `0e99`, `-0.0E-5`},
		{`12345678901234567890.10`, `1234567890123456789010e-2`},
		{`100`, `1e2`, `1E+2`, `100.0`},
		{`{"a": [1, {"b": 20}], "c": "x"}`, `{"c":"\u0078","a":[1e0,{"b":2e1}]}`},
	} {
		for _, s := range same {
			if print(s) != print(same[0]) {
				t.Errorf("%s and %s are not the same", s, same[0])
			}
		}
	}
	seen := map[string]string{}
	for _, s := range []string{`0`, `1`, `-1`, `10`, `0.1`, `12345678901234567890.11`, `12345678901234567890.10`, `"1"`,
		`"1e0"`, `null`, `{}`, `[]`, `[1]`, `1e999999999999999999999`} {
		if other, ok := seen[print(s)]; ok {
			t.Errorf("%s and %s are the same", s, other)
		}
		seen[print(s)] = s
	}
}
