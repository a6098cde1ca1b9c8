package outbox

import (
	"encoding/json"
	"math/big"
	"net/url"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
)

// Which transactions exclude each other comes back as it was written, and nothing may follow it.
func FuzzExclusive(f *testing.F) {
	for _, s := range []string{`"none"`, `"type"`, `""`, `"field:/a"`, `"group:a:/b"`, `{"group":"a","by":"/b"}`,
		`{"group":"a:b","by":"/c"}`, `{"group":"","by":"/c"}`, `{"group":"a","by":""}`, `{"group":"a","by":"b:/c"}`,
		`{"group":"a","by":"/b","x":1}`, `{"group":"a","by":"/b"} {}`, `{"group":"a","by":"/b"}]`, `null`, `7`,
		`{"group":"a","by":"/~2"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var e, again Exclusive
		if e.UnmarshalJSON(text) != nil {
			if e != "" {
				t.Errorf("%s is refused, and is %q", text, e)
			}
			return
		}
		if !json.Valid(text) {
			t.Errorf("%s is %q", text, e)
		}
		said, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(said, &again); err != nil || again != e {
			t.Errorf("%s is %q, written as %s, which is %q: %v", text, e, said, again, err)
		}
		var g exclusiveGroup
		if json.Unmarshal(text, &g) == nil && g.Group != "" && (e.Group() != g.Group || e.by() != g.By) {
			t.Errorf("%s is of the group %q by %q", text, e.Group(), e.by())
		}
	})
}

// A pointer finds a value that is in the document, in the one text that equal values have.
func FuzzExclusivePointer(f *testing.F) {
	for _, c := range [][2]string{{`{"a":[{"b~/":1.50}]}`, "/a/0/b~0~1"}, {`[1,2]`, "/1"}, {`[1,2]`, "/-1"}, {`[1]`,
		"/+0"},
		{`{"":{"":2}}`, "//"}, {`{"a":1}`, ""}, {`{"a":1}`, "a"}, {`{"a":1,"a":2}`, "/a"}, {`{"a":null}`, "/a/b"},
		{`7`, "/a"},
		{`{"a":1e3}`, "/a"}, {`{"a":"\ud800"}`, "/a"}} {
		f.Add([]byte(c[0]), c[1])
	}
	f.Fuzz(func(t *testing.T, data []byte, ptr string) {
		if Pointer(ptr).Check() != nil || !json.Valid(data) {
			return
		}
		text := pointer(data, ptr)
		if !json.Valid([]byte(text)) || pointer([]byte(text), "") != text {
			t.Errorf("%q in %q is %q, and that %q", ptr, data, text, pointer([]byte(text), ""))
		}
		if within := pointer([]byte(`{"x":`+string(data)+`}`), "/x"+ptr); within != text {
			t.Errorf("%q in %q is %q, and %q further within", ptr, data, text, within)
		}
	})
}

// Equal numbers have one text, others have others; and what has one text keeps it.
func FuzzCanonical(f *testing.F) {
	for _, c := range [][2]string{{"1.50", "15e-1"}, {"0", "-0.0e7"}, {"1e20", "100000000000000000000"}, {"1e21",
		"10e20"},
		{"0.00000000000000000001", "1E-20"}, {"1e-21", "0.1e-20"}, {"-1", "1"}, {"1e99999999999999999999", "1"},
		{`{"b":1.0,"a":[2e0]}`, `{"a":[2],"b":1}`}, {"1e9223372036854775807", "10e9223372036854775807"}, {"x", `"x"`}} {
		f.Add(c[0], c[1])
	}
	number := func(s string) *big.Rat {
		if len(s) > 40 || !json.Valid([]byte(s)) || strings.ContainsAny(s[:1], `"[{tfn`) {
			return nil
		}
		if i := strings.IndexAny(s, "eE"); i >= 0 && len(s)-i > 4 {
			return nil
		}
		r, _ := new(big.Rat).SetString(strings.TrimSpace(s))
		return r
	}
	f.Fuzz(func(t *testing.T, x, y string) {
		said := func(s string) string {
			text, err := json.Marshal(Canonical(json.RawMessage(s)))
			if err != nil {
				t.Fatalf("%q: %v", s, err)
			}
			return string(text)
		}
		a, b := said(x), said(y)
		if json.Valid([]byte(x)) && said(a) != a {
			t.Errorf("%q is %s, and that %s", x, a, said(a))
		}
		p, q := number(x), number(y)
		if p != nil && q != nil && (p.Cmp(q) == 0) != (a == b) {
			t.Errorf("%q is %s, and %q is %s", x, a, y, b)
		}
		if r := number(a); p != nil && (r == nil || r.Cmp(p) != 0) && len(a) <= 40 {
			t.Errorf("%q is %s", x, a)
		}
	})
}

// A URL over Mycelium has a key and a path, and nothing else.
func FuzzMycelium(f *testing.F) {
	key := strings.Repeat("aB", 32)
	for _, s := range []string{"", "mycelium:", "mycelium:" + key, "mycelium:" + key + "/",
		"mycelium:" + key + "/a%2fb",
		"mycelium:" + key + "/%zz", "mycelium:" + key + "?a", "mycelium:" + key + "/#", "mycelium:" + key[1:],
		"MYCELIUM:" + key,
		"mycelium:" + key + "/a\n", "mycelium:" + key + "//host/../x", "mycelium://" + key} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		a, err := ParseMycelium(raw)
		if (err == nil) != (CheckMycelium("/url", raw) == nil) {
			t.Errorf("%q: %v, and %v", raw, err, CheckMycelium("/url", raw))
		}
		if err != nil {
			return
		}
		u, err := url.Parse(raw)
		if err != nil || u.RawQuery != "" || u.Fragment != "" || u.Host != "" || !IsMycelium(raw) {
			t.Errorf("%q is %+v: %v", raw, u, err)
		}
		again, err := ParseMycelium(MyceliumScheme + a.Key + a.Path)
		if err != nil || again != a || !strings.EqualFold(MyceliumScheme+a.Key, raw[:len(MyceliumScheme)+64]) ||
			a.Path != raw[len(MyceliumScheme)+64:] {
			t.Errorf("%q is %+v, which comes back as %+v: %v", raw, a, again, err)
		}
	})
}

// A URL of a peer that is taken is that of a door, and a verb behind it is a further step of its path. One of http, for
// others to read, is taken of an insecure peer alone.
func FuzzPeerURL(f *testing.F) {
	const door = "/contexts/a/peers/b"
	for _, s := range []string{"https://h" + door, "http://h" + door, "http://127.0.0.1:1" + door,
		"http://[::ffff:127.0.0.1]" + door,
		"http://localhost.evil" + door, "https://h" + door + "?", "https://h" + door + "#", "https://h" + door + "/",
		"https://h/x" + door,
		"https://u@h" + door, "https://" + door, "mycelium:" + strings.Repeat("ab", 32) + door,
		"mycelium:" + strings.Repeat("ab", 32) +
			"/contexts/%61/peers/b", "https://h/contexts/%61/peers/b", "https://h/contexts/a%2fb/peers/b",
		"HTTPS://h" + door,
		"https://h/x%3f" + door, "https:h" + door, ""} {
		f.Add(s, false)
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, raw string, insecure bool) {
		d, ok := DoorOf(raw)
		if err := CheckPeerURL("/url", raw, insecure); err != nil {
			if fault.KindOf(err) != fault.Invalid {
				t.Errorf("%q: %v", raw, err)
			}
			return
		}
		u, err := url.Parse(raw + "/hello")
		if err != nil || !ok || d.Context == "" || d.Peer == "" {
			t.Fatalf("%q is the door %+v: %v", raw, d, err)
		}
		path := u.Path
		if IsMycelium(raw) {
			path = u.Opaque
		} else if u.User != nil || u.Host == "" || u.Scheme == "http" && !insecure && !isLoopback(u.Hostname()) {
			t.Errorf("%q is taken", raw)
		}
		if u.RawQuery != "" || u.Fragment != "" || !strings.HasSuffix(path,
			"/contexts/"+d.Context+"/peers/"+d.Peer+"/hello") {
			t.Errorf("the call below %q goes to %+v", raw, u)
		}
	})
}
