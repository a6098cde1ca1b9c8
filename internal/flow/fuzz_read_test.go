package flow_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
)

// Jobs of a message are refused as bad input below the list, or each of them can be run, and no two have one ref.
func FuzzSpecsIn(f *testing.F) {
	for _, s := range []string{`[]`, `null`, `{}`, `[null]`, `[{}]`, `[{"script":"a","script_type":"python"}]`,
		`[{"ref":1,"script":"a","script_type":"v"},{"ref":1,"script":"a","script_type":"v"}]`,
		`[{"Script":"a","script_type":"v"}]`,
		`[{"script":"a","script_type":"need"}]`, `[{"script":"a","script_type":"v","timeout":0}]`,
		`[{"script":"a","script_type":"v","timeout":9223372036854775807}]`,
		`[{"script":"a","script_type":"v","target":null}]`,
		`[{"script":"a","script_type":"v","target":{"peer":"p"}}]`, `[{"script":"\u0000","script_type":"v"}]`,
		`[{"script":"a","script_type":"v","env_vars":{"PATH":"x"}}]`, `[{"ref":-1,"script":"a","script_type":"v"}]`,
		`[{"script":"a","script_type":"v","prerequisites":["x","x"]}]`, `[{"script":"a","script_type":"v"}] x`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		specs, err := flow.SpecsIn("/jobs", raw)
		if err != nil {
			e := fault.As(err)
			if e.Kind != fault.Invalid && e.Kind != fault.Forbidden || len(e.Fields) != 1 ||
				!strings.HasPrefix(e.Fields[0].Pointer, "/jobs") || specs != nil {
				t.Errorf("%s: %#v", raw, err)
			}
			return
		}
		if !json.Valid(raw) {
			t.Errorf("%s is %d jobs", raw, len(specs))
		}
		refs := map[int64]bool{}
		for _, s := range specs {
			if err := s.Validate("/jobs"); err != nil || flow.CheckScriptType("/jobs", s.ScriptType) != nil ||
				s.Peer != "" {
				t.Errorf("%s: %+v is taken, and is no job: %v", raw, s, err)
			}
			if s.Ref != nil && refs[*s.Ref] {
				t.Errorf("%s: two jobs have the ref %d", raw, *s.Ref)
			} else if s.Ref != nil {
				refs[*s.Ref] = true
			}
		}
	})
}

// A uid of a transaction is that of one job or of one prerequisite, or of neither, and their own uids name them.
func FuzzUIDs(f *testing.F) {
	job := uuid.MustParse("0190b5a2-7c1e-7000-8000-000000000001")
	for _, s := range []string{"", ":job:", flow.UID(job), flow.NeedUID(job, 0), flow.NeedHash(flow.NeedUID(job, 7)),
		":need:" + job.String(), ":need:" + job.String() + ":", ":need:" + job.String() + ":+1",
		"::need:" + job.String() + ":1",
		":need:" + job.String() + ":99999999999999999999", ":job:urn:uuid:" + job.String(), "job:" + job.String(),
		":need::"} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, uid string, number int) {
		id, n, need := flow.NeedOf(uid)
		if need {
			if again, m, ok := flow.NeedOf(flow.NeedUID(id, n)); !ok || again != id || m != n {
				t.Errorf("%q is need %d of %s, whose uid is need %d of %s", uid, n, id, m, again)
			}
			if m, of, ok := flow.NeedOf(flow.NeedHash(flow.NeedUID(id, number))); !ok || m != id || of != number {
				t.Errorf("the hash of need %d of %s is of need %d of %s", number, id, of, m)
			}
		}
		of, ok := flow.JobOfUID(uid)
		if !ok {
			return
		}
		if again, ok := flow.JobOfUID(flow.UID(of)); !ok || again != of || need {
			t.Errorf("%q is of job %s, whose uid is of %s; of a need: %v", uid, of, again, need)
		}
	})
}
