package httpapi

import (
	"encoding/base64"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
)

// named says whether a refusal names what it is about.
func named(err error, pointer string) bool {
	f := fault.As(err)
	return f != nil && f.Kind == fault.Invalid && len(f.Fields) == 1 && strings.HasPrefix(f.Fields[0].Pointer,
		pointer) && f.Detail != ""
}

// How long a request waits is within what may be waited, for something that can come; else the refusal names what is
// wrong. What Prefer says beside wait=N is ignored.
func FuzzWait(f *testing.F) {
	for _, c := range [][3]string{{"30s", "terminal", ""}, {"", "DONE", "wait=5"}, {"-1s", "", ""}, {"1000000h",
		"change", "respond-async, wait=\"9\""},
		{"1", "", "wait=99999999999"}, {"2562048h", "waiting", "WAIT=3; foo"}, {"", "", "wait=-1,wait=2"}} {
		f.Add(c[0], c[1], c[2])
	}
	a := &API{Config: Config{Limits: Limits{Wait: 60}}}
	f.Fuzz(func(t *testing.T, wait, until, prefer string) {
		if d, ok := preferred(prefer); d < 0 || ok && !strings.Contains(strings.ToLower(prefer), "wait=") {
			t.Errorf("Prefer: %q waits %s", prefer, d)
		}
		s, err := a.waitOf(&Waiting{Wait: wait, Until: until, Prefer: prefer})
		if err != nil {
			if !named(err, "wait") && !named(err, "until") {
				t.Errorf("%q %q %q: %#v", wait, until, prefer, err)
			}
			return
		}
		if s.length < 0 || s.length > time.Minute || s.change && s.state != "" || s.state != "" && s.state.Code() == 0 {
			t.Errorf("%q %q %q: %+v", wait, until, prefer, s)
		}
	})
}

// sealCursor is a cursor as Paging writes it.
func sealCursor(of []any, at json.RawMessage) string {
	b, _ := json.Marshal(sealed{seal(of), at})
	return base64.RawURLEncoding.EncodeToString(b)
}

// A cursor that is read was handed out for the same filters, and comes back as it was.
func FuzzCursor(f *testing.F) {
	type place struct {
		At time.Time
		ID int64
	}
	of := []any{"q", 1}
	p := Paging{}
	f.Add("")
	f.Add(sealCursor(of, json.RawMessage(`{"At":"2026-01-02T03:04:05Z","ID":7}`)))
	f.Add(sealCursor(of, json.RawMessage(`null`)))
	f.Add(sealCursor([]any{"r"}, json.RawMessage(`{}`)))
	f.Add("e30")
	f.Fuzz(func(t *testing.T, cursor string) {
		p.Cursor = cursor
		var at place
		err := p.read(of, &at)
		if err != nil {
			if fault.CodeOf(err) != "bad_cursor" {
				t.Errorf("%q: %v", cursor, err)
			}
			return
		}
		if cursor == "" {
			return
		}
		raw, err := json.Marshal(at)
		if err != nil {
			t.Skip(err)
		}
		again := Paging{Cursor: sealCursor(of, raw)}
		var back place
		if err := again.read(of, &back); err != nil || !reflect.DeepEqual(at, back) {
			t.Errorf("%q is %+v, which comes back as %+v: %v", cursor, at, back, err)
		}
	})
}

// An API key is known by its prefix and its hash alone, and its form is the one that is told.
func FuzzParseKey(f *testing.F) {
	f.Add(DrawKey())
	for _, s := range []string{"", "postern_", "postern_abcdefgh_" + strings.Repeat("x", 43) + "\n",
		"postern_ABCDEFGH_" + strings.Repeat("x", 43)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, key string) {
		prefix, hash, ok := ParseKey(key)
		if ok && (!strings.HasPrefix(key, "postern_"+prefix+"_") || len(prefix) != 8 || len(hash) != 32 ||
			strings.ContainsAny(key, "\n \x00")) {
			t.Errorf("%q is a key with the prefix %q", key, prefix)
		}
		if !ok && (prefix != "" || hash != nil) {
			t.Errorf("%q is none, and has the prefix %q", key, prefix)
		}
	})
}

// A place is one of three forms, and names at most one transaction; the refusal of others names it.
func FuzzPlace(f *testing.F) {
	id := outbox.ID{Queue: 1, Seq: 2, Day: 20000}.String()
	for _, s := range []string{`"head"`, `{"before":"` + id + `"}`, `{"after":"` + id + `"}`, `{"before":"` +
		id + `","after":"` + id + `"}`, `null`, `"tail"`,
		`{"before":"x"}`, `{"Before":"` + id + `"}`, `[]`, `{"before":null}`, `{"before":"","after":"` + id + `"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var in struct {
			Place *placeBody `json:"place"`
		}
		if err := json.Unmarshal([]byte(`{"place":`+string(text)+`}`), &in); err != nil {
			return
		}
		to, err := in.Place.place()
		switch {
		case err != nil && !named(err, "/place"):
			t.Errorf("%s: %#v", text, err)
		case err != nil || to == nil:
		case to.Before != nil && to.After != nil:
			t.Errorf("%s is before and after something", text)
		case to.Before == nil && to.After == nil && strings.TrimSpace(string(text)) != `"head"`:
			var word string
			if json.Unmarshal(text, &word) != nil || word != "head" {
				t.Errorf("%s is the head", text)
			}
		}
	})
}

// An If-Match is what was handed out, *, or refused as a condition that does not hold.
func FuzzIfMatch(f *testing.F) {
	for _, s := range []string{`"7"`, `W/"7"`, `*`, `7`, `"0"`, `"-1"`, `"1", "2"`, `""7""`, ` "7" `} {
		f.Add(s, int64(7))
	}
	f.Fuzz(func(t *testing.T, header string, have int64) {
		c := Conditions{Trial: Trial{IfMatch: header}}
		n, err := c.version()
		if err != nil && fault.CodeOf(err) != "precondition_failed" || err == nil && n < 0 &&
			strings.TrimSpace(header) != "*" {
			t.Errorf("%q is %d: %v", header, n, err)
		}
		if have > 0 && header == etag(have) && (n != have || !matches(header, etag(have)) || c.check(have) != nil) {
			t.Errorf("%q is version %d, not %d", header, n, have)
		}
		if err == nil && n > 0 && n != have && c.check(have) == nil {
			t.Errorf("%q lets version %d be changed", header, have)
		}
	})
}

// A height is digits, and shown as they are.
func FuzzHeight(f *testing.F) {
	for _, s := range []string{`"4711"`, `4711`, `4711.0`, `"-1"`, `1e3`, `"00"`, `9223372036854775808`, `null`,
		`"+1"`, `"1_0"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var in struct {
			Height *height `json:"height"`
		}
		if err := json.Unmarshal([]byte(`{"height":`+string(text)+`}`), &in); err != nil {
			if json.Valid(text) && !named(err, "/height") {
				t.Errorf("%s: %#v", text, err)
			}
			return
		}
		if in.Height == nil {
			return
		}
		n := int64(*in.Height)
		if said := strings.TrimLeft(strings.Trim(string(text), "\" \t\r\n"), "0"); n < 0 ||
			*digits(&n) != said && (n != 0 || said != "") {
			t.Errorf("%s is %d", text, n)
		}
	})
}

// A filter of one or more is what its JSON says.
func FuzzOneOrMore(f *testing.F) {
	for _, s := range []string{`"a"`, `["a","b"]`, `[]`, `null`, `[null]`, `[1]`, `{}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var v oneOrMore
		if json.Unmarshal(text, &v) != nil {
			return
		}
		said, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var again oneOrMore
		if err := json.Unmarshal(said, &again); err != nil || !reflect.DeepEqual([]string(v), []string(again)) {
			t.Errorf("%s is %q, written as %s, which is %q: %v", text, v, said, again, err)
		}
	})
}

// Two texts of one value are equal, in both directions, and what is equal has the same members.
func FuzzEqualJSON(f *testing.F) {
	for _, c := range [][2]string{{`{"a":1,"b":[2.50]}`, `{"b":[25e-1],"a":1.0}`}, {`1e400`, `1e401`}, {`-0`,
		`0`}, {`[]`, `{}`}, {`null`, `""`},
		{`12345678901234567890`, `12345678901234567891`}, {`1e1000000000`, `1e1000000001`}, {`0.1`,
			`0.1000000000000000055511151231257827`}} {
		f.Add([]byte(c[0]), []byte(c[1]))
	}
	f.Fuzz(func(t *testing.T, x, y []byte) {
		if !json.Valid(x) || !json.Valid(y) {
			return
		}
		a, b := outbox.Parsed(x), outbox.Parsed(y)
		if !equalJSON(a, outbox.Parsed(x)) {
			t.Errorf("%s is not itself", x)
		}
		if equalJSON(a, b) != equalJSON(b, a) {
			t.Errorf("%s and %s are equal one way", x, y)
		}
		na, ok1 := a.(json.Number)
		nb, ok2 := b.(json.Number)
		if !ok1 || !ok2 || len(na) > 15 || len(nb) > 15 {
			return
		}
		p, err1 := strconv.ParseInt(string(na), 10, 64)
		q, err2 := strconv.ParseInt(string(nb), 10, 64)
		if err1 == nil && err2 == nil && (p == q) != equalJSON(a, b) {
			t.Errorf("%s and %s: equal %v", x, y, p != q)
		}
	})
}
