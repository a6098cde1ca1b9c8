package httpapi

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/postern-dev/postern/internal/fault"
)

func TestStrictNamesWhatIsWrongAndWhere(t *testing.T) {
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
		err := strict([]byte(c.body), 64)
		if c.want == "" {
			if err != nil {
				t.Errorf("%.60q: %v", c.body, err)
			}
			continue
		}
		if fault.CodeOf(err) != "malformed_json" || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: %v, want %q", c.body, err, c.want)
		}
		if err != nil && len(err.Error()) > 500 {
			t.Errorf("%.60q: a sentence of %d bytes", c.body, len(err.Error()))
		}
	}
}

// What strict lets pass is read by encoding/json without loss: the same keys, texts and digits.
func FuzzStrict(f *testing.F) {
	for _, s := range []string{`{"a":1}`, `[1e400, -0, 12345678901234567890]`, `{"a":1,"a":2}`, `"\ud800"`, "\"\xff\"", `{"a":{"b":[null,true]}}`, `""x`, `[[[[`, `"\u0000"`, `"\\ufffd"`, `{"a":{"b":1},"b":[{"a":2},{"a":3}]}`, `{"a":[],"a" :1}`, `[-1.5e309]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		err := judge(body, 64)
		if err != nil && plain(body, 64) {
			t.Fatalf("%q is plain, and refused: %v", body, err)
		}
		if err != nil {
			if fault.CodeOf(err) != "malformed_json" || !utf8.ValidString(err.Error()) {
				t.Fatalf("%q: %v", body, err)
			}
			return
		}
		if !json.Valid(body) {
			t.Fatalf("%q passed and is no JSON", body)
		}
		v := parsed(body)
		again, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if !equalJSON(v, parsed(again)) {
			t.Fatalf("%q became %q", body, again)
		}
		if strings.Contains(string(again), `\u0000`) && !strings.Contains(string(body), `\\u0000`) && !strings.Contains(string(again), `\\u0000`) {
			t.Fatalf("%q holds NUL", body)
		}
	})
}

func TestNumbersAreComparedAsTheDatabaseDoes(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`1`, `1.0`, true}, {`1e2`, `100`, true}, {`12345678901234567890`, `12345678901234567891`, false},
		{`{"a":[1,{"b":null}]}`, `{"a":[1.00,{"b":null}]}`, true}, {`{"a":1}`, `{"a":1,"b":2}`, false}, {`"1"`, `1`, false}, {`1e999999999`, `1`, false},
	} {
		if got := equalJSON(parsed([]byte(c.a)), parsed([]byte(c.b))); got != c.same {
			t.Errorf("%s and %s: %v", c.a, c.b, got)
		}
	}
}

func TestPointersOfFields(t *testing.T) {
	for in, want := range map[string]string{
		"body": "", "body.queue": "/queue", "body.items[3].tags": "/items/3/tags", "body[2].a": "/2/a", "query.limit": "limit", "path.name": "name", "header.Idempotency-Key": "Idempotency-Key",
	} {
		if got := pointerOf(in); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

// Nearly every body is passed at a glance: what that gains is lost silently if it no longer is.
func TestAnOrdinaryBodyIsPlain(t *testing.T) {
	body := `{"queue": "alice", "type": "transfer", "data": {"to": "0xé", "amount": -12.5, "list": [{"a": 1}, {"a": 2}]}, "tags": {"a": "x: y"}}`
	if !plain([]byte(body), 64) || strict([]byte(body), 64) != nil {
		t.Error("an ordinary body is looked at token by token")
	}
}
