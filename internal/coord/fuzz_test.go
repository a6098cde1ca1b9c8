package coord

import "testing"

// What the service of a domain answers is refused, or is of the contract: what it has assembled is then taken by each
// other node, under the same hash.
func FuzzAnswer(f *testing.F) {
	for _, body := range []string{
		`{"result":"OK","inputs":["s1"],"outputs":[{"id":"s2","data":{"n":1}}],"plan":[{"name":"owner","type":"sign",` +
			`"parties":["x@a"]},{"name":"notary","type":"endorse","parties":["x@a","x@b"],"threshold":1}]}`,
		`{"result":"PARK","reason":"later","resume":{"after":"5s"}}`, `{"result":"REVERT","reason":"no"}`,
		`{"signature":"s"}`, `{"endorsement":"e"}`, `{"revert_reason":"no"}`, `{"type":"TOK","data":{}}`,
		`{"items":[{"state":"unknown"}]}`, `{"result":"OK","plan":null}`, `{"result":"OK","outputs":[{"id":""}]}`, `[]`,
	} {
		for kind := range byte(6) {
			f.Add(kind, []byte(body))
		}
	}
	d := New("tok", "a", Defaults("a", "b"), 1)
	kinds := []string{"assemble", "sign", "endorse", "prepare", "look", "other"}
	f.Fuzz(func(t *testing.T, kind byte, body []byte) {
		c := Call{Key: "k", Kind: kinds[int(kind)%len(kinds)]}
		a, kept, err := d.ReadAnswer(&c, body, []string{"TOK"})
		if err != nil || c.Kind != "assemble" || a.Result != OK {
			return
		}
		_, brief, err := d.ReadMaking(kept)
		if err != nil || brief.Hash != a.Assembled.Hash || brief.Hash != HashOf(kept) {
			t.Errorf("%s was assembled as %s, and is %+v elsewhere: %v", kept, a.Assembled.Hash, brief, err)
		}
	})
}

// Whatever another node says was assembled is refused, or has a hash that is that of its bytes, and is the same when it
// is read once more.
func FuzzReadMaking(f *testing.F) {
	for _, s := range []string{`{}`, `null`, `[]`, `{"plan":null}`, `{"inputs":["s1","s1"]}`, `{"outputs":[{"id":""}]}`,
		`{"inputs":["s1"],"outputs":[{"id":"s2","data":{"n":1.0}}],` +
			`"plan":[{"name":"o","type":"sign","parties":["x@a"]}]}`,
		`{"plan":[{"name":"o","type":"endorse","parties":["x@a"],"threshold":2}]}`,
		`{"assembled":{"a":1e2}}`, `{} {}`} {
		f.Add([]byte(s))
	}
	d := New("tok", "a", Defaults("a", "b"), 1)
	f.Fuzz(func(t *testing.T, kept []byte) {
		m, brief, err := d.ReadMaking(kept)
		if err != nil {
			if brief.Hash != "" || err.Error() == "" {
				t.Errorf("%q is refused, and is %+v: %v", kept, brief, err)
			}
			return
		}
		_, again, err := d.ReadMaking(kept)
		if err != nil || again.Hash != brief.Hash || brief.Hash == "" || brief.Hash != HashOf(kept) {
			t.Errorf("%q is %+v, and then %+v: %v", kept, m, again, err)
		}
	})
}
