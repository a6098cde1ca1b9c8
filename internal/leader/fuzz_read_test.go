package leader

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/fault"
)

// A schema is refused as bad input, or what is held against it fits or does not; neither takes long.
func FuzzNewSchema(f *testing.F) {
	for _, s := range []string{`true`, `{}`, `{"type":"object","required":["a"]}`, `{"$ref":"#"}`,
		`{"$ref":"#/$defs/a"}`,
		`{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}`, `{"$dynamicRef":"#x"}`,
		`{"$ref":"http://a/b"}`, `{"$id":"http://a/b","$ref":"c"}`, `{"pattern":"(a*)*b"}`, `{"pattern":"("}`, `[]`,
		`{"patternProperties":{"(":{}}}`, `{"allOf":[{"$ref":"#"},{"$ref":"#"}]}`, `{"multipleOf":1e-1000}`,
		`{"$anchor":"a"}`,
		`{"unevaluatedProperties":false,"anyOf":[{"properties":{"a":{}}},true]}`, `{"enum":[{"$ref":7}]}`,
		`{"$schema":"x"}`,
		`{"uniqueItems":true,"contains":{},"minContains":0}`, `{"format":"date"}`, `{"$vocabulary":{"a":true}}`} {
		f.Add([]byte(s), []byte(`{"a":["x",1,1]}`))
		f.Add([]byte(s), []byte(`[[[]]]`))
	}
	f.Fuzz(func(t *testing.T, raw, doc []byte) {
		began := time.Now()
		s, err := NewSchema("/schema", raw)
		if err != nil {
			e := fault.As(err)
			if e.Kind != fault.Invalid || len(e.Fields) != 1 || !strings.HasPrefix(e.Fields[0].Pointer, "/schema") {
				t.Errorf("%q: %#v", raw, err)
			}
			return
		}
		first := s.Check(doc)
		if again := s.Check(doc); (first == nil) != (again == nil) {
			t.Errorf("%q against %q: %v, and then %v", doc, raw, first, again)
		}
		if first != nil && (first.Error() == "" || !utf8.ValidString(first.Error())) {
			t.Errorf("%q against %q: %q", doc, raw, first)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%q against %q took %s", doc, raw, took)
		}
	})
}

// No event leads to another host than the template of a source that is taken, nor to another scheme or user: what an
// event brings fills a part of the path or of the query.
func FuzzInputOf(f *testing.F) {
	for _, input := range []string{"", "/a", "/a~2", "https://host/{/a}", "https://host{/a}/x", "https://{/a}/x",
		"https://host:{/a}/x", "https://{/a}@host/", "http{/a}://host/", "https://host?{/a}", "https://host#{/a}",
		"https://host/x?y={/a}&z={/b}", "https://host/{/a", "ftp://host/{/a}", "https:/{/a}",
		"https://host/{/a}/{/a~2}",
		"{/a}", "https://u:p@host/{/a}", "https://[::1{/a}]/", "https://host/{}/"} {
		for _, event := range []string{`{"a":"x"}`, `{"a":".evil"}`, `{"a":"../../y?#"}`, `{"a":"@evil"}`, `{"a":7}`,
			`{"a":{}}`, `{"a":"\u0000\ud800"}`} {
			f.Add(input, []byte(event))
		}
	}
	f.Fuzz(func(t *testing.T, input string, event []byte) {
		m := SourceMap{Input: input}
		if err := m.checkInput(); err != nil {
			if fault.KindOf(err) != fault.Invalid {
				t.Errorf("%q: %v", input, err)
			}
			return
		}
		if !json.Valid(event) {
			return
		}
		data, from, err := m.InputOf(event)
		if err != nil {
			if fault.CodeOf(err) != "no_input" || data != nil || from != "" {
				t.Errorf("%q of %s: %s, %q, %v", input, event, data, from, err)
			}
			return
		}
		if (data == nil) == (from == "") {
			t.Errorf("%q of %s is %s and %q", input, event, data, from)
		}
		if from == "" {
			return
		}
		meant, err := url.Parse(hole.ReplaceAllString(input, "x"))
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(from)
		if err != nil || u.Host != meant.Host || u.Scheme != meant.Scheme || u.User.String() != meant.User.String() {
			t.Errorf("%q of %s leads to %q: %v", input, event, from, err)
		}
	})
}

// A cursor of GraphQL is the start or an endCursor, and one that is written is read as the same.
func FuzzSuiCursor(f *testing.F) {
	for _, s := range []string{``, `null`, `"abc"`, `""`, `{}`, `{"endCursor":"a","event":"b:1","checkpoint":"7"}`,
		`{"endCursor":7}`, `7`, `[]`, `{"endCursor":null}`, ` null `, `{"txDigest":"a","eventSeq":"1"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, ok := suiCursorOf(raw)
		if !ok {
			if c != (suiCursor{}) && c.EndCursor != "" {
				t.Errorf("%q is no cursor, and is %+v", raw, c)
			}
			return
		}
		if c.EndCursor == "" {
			if notNull(raw) != nil {
				t.Errorf("%q is the start", raw)
			}
			return
		}
		if again, ok := suiCursorOf(c.json()); !ok || again != c {
			t.Errorf("%q is %+v, which comes back as %+v", raw, c, again)
		}
	})
}

// Whatever a tool answers with an error is short text that can be stored; it has the form of one only if it is an
// object.
func FuzzToolError(f *testing.F) {
	for _, s := range []string{``, `{}`, `{"error":"a_code","details":"b"}`, `{"error":{"code":"c","message":"m"}}`,
		`{"error":"a","message":"m"}`, `{"error":"\u0000\ud800","details":"\u0007"}`, `{"Error":"a"}`,
		`{"error":["a"]}`,
		`{"error":"a","error":"b"}`, `{"error":null,"details":null}`, `[]`, `"x"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		code, detail, form := toolError(body)
		for _, s := range []string{code, detail} {
			if !utf8.ValidString(s) || utf8.RuneCountInString(s) > 64 || strings.ContainsFunc(s, func(r rune) bool {
				return r < 0x20 || r == 0x7f
			}) {
				t.Errorf("%q says %q", body, s)
			}
		}
		if form && (!errorCode.MatchString(code) && len(code) < 64 ||
			!strings.HasPrefix(strings.TrimSpace(string(body)), "{")) {
			t.Errorf("%q has the form of an error, %q", body, code)
		}
	})
}

// The event of a uid is the one whose uid it is.
func FuzzEventOfUID(f *testing.F) {
	const id = "0190b5a2-7c1e-7000-8000-000000000001"
	for _, s := range []string{"", "event:", "event:" + id, "event:" + id + ":tool:1", "event:" + id + ":result",
		"event:{" + id + "}:result", "event:urn:uuid:" + id, "Event:" + id, ":event:" + id, "event::" + id} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, uid string) {
		id, ok := EventOfUID(uid)
		if !ok {
			return
		}
		text, _, _ := strings.Cut(strings.TrimPrefix(uid, "event:"), ":")
		if said, err := uuid.Parse(text); err != nil || said != id || !strings.HasPrefix(uid, "event:") {
			t.Errorf("%q is of event %s", uid, id)
		}
		if again, ok := EventOfUID("event:" + id.String() + ":result"); !ok || again != id {
			t.Errorf("the result of %s is of event %s", id, again)
		}
	})
}
