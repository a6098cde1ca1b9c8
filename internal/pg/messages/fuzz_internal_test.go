package messages

import (
	"encoding/json"
	"testing"

	"github.com/postern-dev/postern/internal/flow"
)

// Whatever a peer answers about the end of a job, the job ends: with a result that a job may have, or with a code.
func FuzzEndAt(f *testing.F) {
	for _, s := range []string{
		`{"jobs":[{"status":"Finished","result":{"a":"b"}}]}`, `{"jobs":[{"status":"Finished","result":null}]}`,
		`{"jobs":[{"status":"Finished","result":{"a":1}}]}`, `{"jobs":[{"status":"Finished","result":[]}]}`,
		`{"jobs":[{"status":"Failed","error":{"code":"script_failed","message":"no"},"exit_code":1}]}`,
		`{"jobs":[{"status":"Failed","error":{}}]}`, `{"jobs":[{"status":"Finished","error":null}]}`,
		`{"jobs":[{"status":"Cancelled"}]}`, `{"jobs":[{}]}`, `{"jobs":[null]}`, `{"jobs":[]}`, `{"jobs":null}`, `{}`,
		`null`, `[]`, ``, `{"jobs":[{},{}]}`, `{"jobs":[{"status":"Finished","result":{"a":"\u0000\u003c"}}]}`,
		`{"jobs":[{"exit_code":1e99}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		said := endAt(raw)
		if said == nil {
			t.Fatalf("%q: the job does not end", raw)
		}
		if said.Code != "" {
			return
		}
		kept, err := flow.CheckResult("result", said.Result)
		if err != nil || len(kept) > 0 && !json.Valid(kept) {
			t.Errorf("%q: the result %q, which is none: %v", raw, said.Result, err)
		}
		if string(kept) != string(said.Result) {
			t.Errorf("%q: the result %q is kept as %q", raw, said.Result, kept)
		}
	})
}
