package mycelium

import (
	"context"
	"encoding/json"
	"testing"
)

// What a node answers is a message with the key of its sender and an id that a reply may name, or none.
func FuzzMessage(f *testing.F) {
	const key = "bb39b4a3a4efd70f3e05e37887677e02efbda14681d0acd3882bc0f754792c32"
	for _, s := range []string{`{"id":"0123456789abcdef","srcPk":"` + key + `","payload":"e30="}`,
		`{"id":"0123456789ABCDEF","srcPk":"` + key + `","payload":"not base64"}`,
		`{"id":"+123456789abcdef","srcPk":"` + key + `"}`,
		`{"id":"","srcPk":""}`, `[]`, `null`, ``} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := readMessage(text)
		if (m == nil) == (err == nil) {
			t.Fatalf("%q is %v and %v", text, m, err)
		}
		if m == nil {
			return
		}
		if !publicKey.MatchString(m.SrcPk) || !isHex(m.ID) || len(m.ID) != 16 {
			t.Errorf("%q is %+v", text, m)
		}
	})
}

func isHex(s string) bool {
	for _, c := range s {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return false
		}
	}
	return true
}

// A call over Mycelium is a request with a path of this process and none of the headers that only a proxy may set, or
// it is refused.
func FuzzCall(f *testing.F) {
	for _, s := range []string{`{"method":"POST","path":"/peers/x/messages","headers":{"A":["1"]},"body":"e30="}`,
		`{"method":"","path":"//host/x"}`, `{"method":"GET /","path":"/"}`, `{"method":"GET","path":"/%zz"}`,
		`{"method":"GET","path":"/a?b#c","headers":{"x-forwarded-for":["1"],"X Y":["\r\n"]}}`,
		`{"method":"GET","path":"http://elsewhere/"}`, `[]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		var c Call
		if json.Unmarshal(payload, &c) != nil {
			return
		}
		r, err := c.Request(context.Background())
		if (r == nil) == (err == nil) {
			t.Fatalf("%q is %v and %v", payload, r, err)
		}
		if r == nil {
			return
		}
		if r.URL.Path == "" || r.URL.Path[0] != '/' || r.Host != "localhost" || r.Method == "" {
			t.Errorf("%q is %s %s at %s", payload, r.Method, r.URL, r.Host)
		}
		for _, name := range personal {
			if r.Header.Get(name) != "" {
				t.Errorf("%q brings %s", payload, name)
			}
		}
	})
}
