package strict

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func parsed(t *testing.T, body []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestCheckNamesWhatIsWrongAndWhere(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{`{"a": 1, "b": [{"c": 1}, {"c": 2}]}`, ""},
		{`"` + "\uFFFD" + `\ufffd"`, ""},
		{`{"a": "\ud83d\ude00"}`, ""},
		{`{"a": 1, "a": 2}`, `the key "a" occurs twice at the root`},
		{`{"a": {"b~/": [0, {"k": 1, "k": 1}]}}`, `the key "k" occurs twice at /a/b~0~1/1`},
		{`{"a": 1, "\u0061": 2}`, `the key "a" occurs twice`},
		{`{"a": "x\u0000y"}`, `the character \u0000 at /a`},
		{`{"a\u0000": 1}`, `the character \u0000 at the root`},
		{`{"a": "\ud800"}`, "half of a surrogate pair at /a"},
		{"{\"a\": \"\xff\"}", "byte 7 is not UTF-8"},
		{`{"a": 1} {}`, "something follows the value"},
		{`{"a": 1`, "it ends too early"},
		{`{"a": [1, -1e400]}`, "the number -1e400 is beyond 1e308 at /a/1"},
		{`{"a": nope}`, "invalid character"},
		{``, "it ends too early"},
		{strings.Repeat("[", 64) + strings.Repeat("]", 64), ""},
		{strings.Repeat("[", 65) + strings.Repeat("]", 65), "nested deeper than 64"},
		{strings.Repeat(`{"a":`, 100000), "nested deeper than 64"},
	} {
		err := Check([]byte(c.body), 64)
		if c.want == "" {
			if err != nil {
				t.Errorf("%.60q: %v", c.body, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: %v, want %q", c.body, err, c.want)
		}
		if err != nil && len(err.Error()) > 500 {
			t.Errorf("%.60q: a sentence of %d bytes", c.body, len(err.Error()))
		}
	}
}

// What Check lets pass is read by encoding/json without loss: the same keys, texts and digits.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{`{"a":1}`, `[1e400, -0, 12345678901234567890]`, `{"a":1,"a":2}`, `"\ud800"`, "\"\xff\"",
		`{"a":{"b":[null,true]}}`, `""x`, `[[[[`, `"\u0000"`, `"\\ufffd"`, `{"a":{"b":1},"b":[{"a":2},{"a":3}]}`,
		`{"a":[],"a" :1}`, `[-1.5e309]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		err := judge(body, 64)
		if err != nil && plain(body, 64) {
			t.Fatalf("%q is plain, and refused: %v", body, err)
		}
		if err != nil {
			if !utf8.ValidString(err.Error()) {
				t.Fatalf("%q: %v", body, err)
			}
			return
		}
		if !json.Valid(body) {
			t.Fatalf("%q passed and is no JSON", body)
		}
		v := parsed(t, body)
		again, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(v, parsed(t, again)) {
			t.Fatalf("%q became %q", body, again)
		}
		if strings.Contains(string(again), `\u0000`) && !strings.Contains(string(body), `\\u0000`) &&
			!strings.Contains(string(again), `\\u0000`) {
			t.Fatalf("%q holds NUL", body)
		}
	})
}

// Nearly every body is passed at a glance: what that gains is lost silently if it no longer is.
func TestAnOrdinaryBodyIsPlain(t *testing.T) {
	body := `{"queue": "alice", "type": "transfer", "data": {"to": "0xé", "amount": -12.5, "list": [{"a": 1}, {"a": 2}]}, "tags": {"a": "x: y"}}`
	if !plain([]byte(body), 64) || Check([]byte(body), 64) != nil {
		t.Error("an ordinary body is looked at token by token")
	}
}
