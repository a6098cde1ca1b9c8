package domains

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/fault"
)

// A message of another node is refused as bad input, or a step takes it: it does not fail, and comes to its rest.
func FuzzParcel(f *testing.F) {
	const id = `"id":"0192f5f0-0000-7000-8000-000000000001"`
	const of = `"domain":"tok","from":"b","to":"a","install":1,"beat":9,"height":3,` + id
	for _, rest := range []string{
		`"kind":"AssembleRequest","generation":7,"key":"k","pending":["s"]`,
		`"kind":"AssembleResponse","generation":7,"key":"k","result":"OK","hash":"h","made":{"plan":[]}`,
		`"kind":"EndorsementRequest","name":"n","party":"x@a","key":"k","made":{}`,
		`"kind":"DispatchConfirmationRequest","generation":7,"hash":"h"`,
		`"kind":"Heartbeat","state":"Active","entries":[{` + id + `,"state":"Dispatched"}]`,
	} {
		f.Add([]byte("{" + of + "," + rest + "}"))
	}
	const bare = `"domain":"tok","from":"b","to":"a","install":1,"beat":9`
	for _, rest := range []string{
		`"kind":"DelegationRequest","delegations":[{"id":"0192f5f0-0000-7000-8000-000000000002"}]`,
		`"kind":"DelegationResponse","ids":["0192f5f0-0000-7000-8000-000000000001"],"room":3`,
		`"kind":"Heartbeat","state":"Flush","successor":"a","points":["p"],"tenure":1`, `"kind":"HandoverRequest"`,
		`"kind":"Hello"`, `"kind":"Greeting","seen":1,"seen_install":1`, `"kind":"Ask"`,
	} {
		f.Add([]byte("{" + bare + "," + rest + "}"))
	}
	set := Default()
	set.Self, set.Nodes = "a", []string{"a", "b"}
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, raw []byte) {
		var p Parcel
		if json.Unmarshal(raw, &p) != nil || !p.Kind.Known() {
			return
		}
		d := coord.New("tok", "a", set.coord(), 1)
		if err := p.check("/messages/0", "b", &home{1, set, d, false}); err != nil {
			if k := fault.As(err).Kind; k != fault.Invalid && k != fault.Forbidden {
				t.Errorf("%s is %v", err, k)
			}
			return
		}
		first := coord.Event{Created: &coord.Intent{ID: "0192f5f0-0000-7000-8000-000000000001"}}
		at := now
		for _, events := range [][]coord.Event{{first}, {{Message: &p.Message}}, {{Message: &p.Message}}} {
			step, err := coord.Handle(d, events, at, 3)
			if err != nil {
				t.Fatal(err)
			}
			d, at = step.Domain, at.Add(time.Second)
		}
	})
}

// The height that a service answers is refused, or is one that other nodes take, and reads back as it was written.
func FuzzReadHeight(f *testing.F) {
	for _, s := range []string{`{"height":7}`, `{"height":"7"}`, `{"height":9007199254740993}`, `{"height":-1}`,
		`{"height":1e3}`, `{"height":7.0}`, `{"height":null}`, `{}`, `null`, `[]`, `{"height":"0x7"}`,
		`{"height":007}`, `{"height":99999999999999999999}`, `{"HEIGHT":3}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		height, err := readHeight(body)
		if err != nil {
			return
		}
		if height < 0 || height > mostNumber {
			t.Fatalf("%q is the height %d", body, height)
		}
		again, err := readHeight([]byte(`{"height":` + strconv.FormatInt(height, 10) + `}`))
		if err != nil || again != height {
			t.Errorf("%q is the height %d, which reads back as %d: %v", body, height, again, err)
		}
	})
}
