package httpapi

import (
	"bytes"
	"encoding/json"
	"math"
	"net/url"
	"path"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/batches"
	"github.com/postern-dev/postern/internal/processor"
	"github.com/postern-dev/postern/internal/runner"
)

// A hold that is read is written as a pair that is read as the same, and a runner reads it as the same too.
func FuzzTryHold(f *testing.F) {
	const try = `"0190b5a2-7c1e-7000-8000-000000000001"`
	for _, s := range []string{`[` + try + `,1764189390123]`, `[` + try + `,-1]`, `[` + try + `,"1"]`, `[` + try + `]`,
		`[]`,
		`[null,null]`, `["urn:uuid:0190b5a2-7c1e-7000-8000-000000000001",1]`, `["",1]`, `[` + try + `,1e3]`, `{}`,
		`null`,
		`[` + try + `,9223372036854775808]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var h, again tryHold
		if json.Unmarshal(text, &h) != nil {
			return
		}
		said, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(said, &again); err != nil || again != h {
			t.Errorf("%s is %+v, which comes back as %+v: %v", text, h, again, err)
		}
		var there runner.Hold
		if err := json.Unmarshal(text, &there); err != nil || there.Fence != h.Fence {
			t.Errorf("%s is %+v here, and %+v to a runner: %v", text, h, there, err)
		}
		if err := json.Unmarshal(said, &there); err != nil || there.Try != h.Try.String() || there.Fence != h.Fence {
			t.Errorf("%s is %+v to a runner: %v", said, there, err)
		}
	})
}

// Inputs that are taken are results of jobs by their refs, as those are that read them later, and no longer than is
// taken. The refusal names them.
func FuzzCheckInputs(f *testing.F) {
	for _, s := range []string{``, `null`, `{}`, `{"1":{"a":"b"}}`, `{"1":{"a":7}}`, `{"1":null}`, `{"1":{"a":null}}`,
		`{"1":"a"}`, `[]`, `{"1":{}} {}`} {
		f.Add([]byte(s), 0)
	}
	f.Add([]byte(`{}`), 2*flow.MaxInputs-2)
	f.Add([]byte(`{}`), 2*flow.MaxInputs-1)
	f.Fuzz(func(t *testing.T, raw []byte, blanks int) {
		if blanks > 0 {
			raw = append(raw, bytes.Repeat([]byte(" "), min(blanks, 2*flow.MaxInputs))...)
		}
		err := checkInputs(raw)
		if err != nil && !named(err, "/inputs") {
			t.Errorf("%.80q: %#v", raw, err)
		}
		if err != nil || len(raw) == 0 {
			return
		}
		var read map[string]map[string]*string
		if json.Unmarshal(raw, &read) != nil || len(raw) > 2*flow.MaxInputs {
			t.Errorf("%.80q, of %d bytes, is taken", raw, len(raw))
		}
	})
}

// A token is a transaction, a dot and what has none; a peer finds a batch by the number in its hash.
func FuzzTransactionOf(f *testing.F) {
	for _, s := range []string{"", ".", "a", "a.1", ".1", "a.b.1", "a.", strings.Repeat("a", 98) + ".1",
		strings.Repeat("a", 99) + ".1"} {
		f.Add(s, int64(7), int64(1764189390123))
	}
	f.Add("0190b5a2-7c1e-7000-8000-000000000001.3", int64(math.MaxInt64), int64(-1))
	f.Fuzz(func(t *testing.T, token string, id, micro int64) {
		of := transactionOf(token)
		attempt, ok := strings.CutPrefix(token, of+".")
		if of != "" && (!ok || strings.Contains(attempt, ".") || len(of) >= 100) {
			t.Errorf("%q is of %q", token, of)
		}
		if of == "" && len(token) <= 100 && strings.Contains(strings.TrimPrefix(token, "."), ".") {
			t.Errorf("%q is of none", token)
		}
		hash := hashOf(&batches.Batch{Batch: processor.Batch{ID: id, CreatedAt: time.UnixMicro(micro)}})
		number, at, _ := strings.Cut(hash, "@")
		if n, err := strconv.ParseInt(number, 10, 64); err != nil || n != id || at != strconv.FormatInt(micro, 10) {
			t.Errorf("batch %d of %d is %s", id, micro, hash)
		}
	})
}

// The items of a batch are the same in both forms of its body, at least one and no more than may be, and the refusal
// names what is wrong.
func FuzzSplitBatch(f *testing.F) {
	for _, s := range []string{`{"items":[{"a":1},{"b":2}]}`, `{"items":[],"atomic":true}`, `{"items":null}`, `{}`,
		`[]`,
		`{"items":[null,7]}`, `{"items":[{}],"atomic":1}`, `{"items":[{}],"x":1}`, "{\"a\":1}\n\n {\"b\":2} \r\n", "\n",
		`{"Items":[{}]}`, `{"items":[1,2,3,4,5]}`, `{"items":[{"a":"\n"}]}`, "{\"items\":[{\n}]}"} {
		f.Add([]byte(s))
	}
	a := &API{Config: Config{Limits: Limits{Items: 4}}}
	f.Fuzz(func(t *testing.T, body []byte) {
		refused := func(err error) {
			if c := fault.CodeOf(err); c != "invalid" && c != "too_large" || !named(err, "") {
				t.Errorf("%q: %#v", body, err)
			}
		}
		lines, atomic, err := a.splitBatch(&batchInput{ContentType: ndjson, RawBody: body})
		if err != nil {
			refused(err)
		} else if atomic || len(lines) == 0 || len(lines) > 4 {
			t.Errorf("%q has %d lines, atomic: %v", body, len(lines), atomic)
		}
		for _, line := range lines {
			if len(bytes.TrimSpace(line)) == 0 || bytes.ContainsRune(line, '\n') || !bytes.Contains(body, line) {
				t.Errorf("%q has the line %q", body, line)
			}
		}
		items, _, err := a.splitBatch(&batchInput{RawBody: body})
		if err != nil {
			refused(err)
			return
		}
		var written bytes.Buffer
		for _, item := range items {
			if err := json.Compact(&written, item); err != nil {
				t.Fatalf("%q has the item %q: %v", body, item, err)
			}
			written.WriteByte('\n')
		}
		again, _, err := a.splitBatch(&batchInput{ContentType: ndjson, RawBody: written.Bytes()})
		if err != nil || len(again) != len(items) || len(items) == 0 || len(items) > 4 {
			t.Errorf("%q has %d items, and by lines %d: %v", body, len(items), len(again), err)
		}
	})
}

// What an owner says of the actions of a batch, a part of a body that was found to be JSON, is read as what is shown of
// it later; the refusal names it.
func FuzzActions(f *testing.F) {
	for _, s := range []string{`{"atomic":{"functions":[],"retry_logic":null,"expiration_time":null}}`,
		`{"non_atomic":{"functions":[{"domain":"main","message_details":{"message_type":"a",` +
			`"message":{"name":"b"}}}]}}`,
		`{"atomic":{"retry_logic":{"times":{"amount":3},"interval":{"seconds":5}}}}`,
		`{"atomic":{"retry_logic":{"times":"indefinitely","interval":{"blocks":1}}}}`, `{} {}`, `{},"x":{}`, `null`,
		`[]`, `{"x":1}`,
		`{"atomic":{"functions":[{"callback_confirmation":{"callback_timeout":-1}}]}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var in newBatch
		if json.Unmarshal([]byte(`{"actions_config":`+string(text)+`}`), &in) != nil {
			return
		}
		var n, again batches.NewBatch
		if err := strictly("/actions_config", in.Actions, &n.Actions); err != nil {
			if fault.KindOf(err) != fault.Invalid {
				t.Errorf("%s: %v", text, err)
			}
			return
		}
		said, err := json.Marshal(n.Actions)
		if err != nil {
			t.Fatal(err)
		}
		if err := strictly("/actions_config", said, &again.Actions); err != nil {
			t.Errorf("%s is shown as %s, which is refused: %v", text, said, err)
		}
		if last, _ := json.Marshal(again.Actions); string(last) != string(said) {
			t.Errorf("%s is shown as %s, which is read as %s", text, said, last)
		}
	})
}

// The settings of a dispatcher that are shown are read as the same settings, as a patch of nothing does.
func FuzzReadSettings(f *testing.F) {
	for _, s := range []string{`{}`, `{"retry":{"kind":"fixed","cap":"1m","factor":3}}`, `{"retry":{"initial":"1h"}}`,
		`{"retry":{"initial":"1h","cap":"1m"}}`, `{"retry":{"cap":"0s"}}`, `{"retry":{"cap":null}}`,
		`{"retry":{"factor":0}}`,
		`{"exclusive":{"group":"a","by":"/b"}}`, `{"exclusive":"field:/a"}`, `{"schema":{"type":"object"}}`,
		`{"schema":null}`,
		`{"fee":{"kind":"step","step":"5"},"capabilities":["atomic"],"posted_by":"admin"}`, `{"retry":null}`,
		`{"inclusion":{"deadline":"-1s"}}`, `{"retry":{"max_retries":0}}`, `[]`, `{"slots":"1"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		d := outbox.DefaultDispatcher()
		if err := readSettings(&d, raw, raw); err != nil {
			if fault.KindOf(err) != fault.Invalid {
				t.Errorf("%s: %v", raw, err)
			}
			return
		}
		e, r := string(d.Exclusive), d.Retry
		if e != "" && !exclusivePattern.MatchString(e) || r.Kind != "fixed" && (r.Factor < 1 || r.Cap != 0 &&
			r.Cap < r.Initial) {
			return // refused by those who look at it next
		}
		said, err := json.Marshal(d)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		again := outbox.DefaultDispatcher()
		if err := readSettings(&again, said, []byte(`{}`)); err != nil {
			t.Fatalf("%s is shown as %s, which is refused: %v", raw, said, err)
		}
		if last, _ := json.Marshal(again); string(last) != string(said) {
			t.Errorf("%s is shown as %s, which is read as %s", raw, said, last)
		}
	})
}

// A name needs no escaping in a path, and is one step of it. A body may leave out the name that its path has.
func FuzzName(f *testing.F) {
	for _, s := range []string{"", "a", "..", ".a", "a/b", "a\n", "claim-7f3", "a:b@c._-", strings.Repeat("a", 200),
		strings.Repeat("a", 201), strings.Repeat("a", 255), strings.Repeat("a", 256), "ä", "a%2f", "\x00"} {
		f.Add(s, "a")
	}
	f.Fuzz(func(t *testing.T, s, other string) {
		if isName(s) && !isUID(s) || isUID(s) != (isName(s) || len(s) > 200 && len(s) <= 255 && isName(s[:200]) &&
			isName("a"+s[200:])) {
			t.Errorf("%q is a name: %v, a uid: %v", s, isName(s), isUID(s))
		}
		if isUID(s) && (url.PathEscape(s) != s || path.Clean("/"+s) != "/"+s || strings.Contains(s, "/") || s == "") {
			t.Errorf("%q is a uid", s)
		}
		if err := ofPath("name", s, other); (err == nil) != (s == "" || s == other) || err != nil && !named(err,
			"/name") {
			t.Errorf("%q at the path %q: %v", s, other, err)
		}
		quoted, _ := json.Marshal(s)
		var q optionalQueue
		if err := json.Unmarshal(quoted, &q); err != nil || !q.given || q.name != strings.ToValidUTF8(s, "\uFFFD") &&
			json.Valid([]byte(s)) {
			t.Errorf("%s is the queue %+v: %v", quoted, q, err)
		}
	})
}

// A fence, a ref and an id are read as they are written, and the refusal names what they are.
func FuzzNumbers(f *testing.F) {
	for _, s := range []string{"", " ", "0", "7", "+7", "-7", "007", "1_0", "0x7", "9223372036854775807",
		"9223372036854775808", "7 ", "0190b5a2-7c1e-7000-8000-000000000001", "{0190b5a2-7c1e-7000-8000-00000000000}",
		"0190b5a27c1e70008000000000000001"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		plain := func(n int64) bool {
			digits := strings.TrimLeft(strings.TrimLeft(s, "+-"), "0")
			return strings.TrimPrefix(strconv.FormatInt(n, 10), "-") == digits || n == 0 && digits == ""
		}
		fence, err := (&OnTry{Fence: s}).fence()
		switch blank := strings.TrimSpace(s) == ""; {
		case err == nil && !plain(fence), err != nil && fence != 0, blank && fault.CodeOf(err) != "fence_required",
			!blank && err != nil && !named(err, "Postern-Fence"):
			t.Errorf("%q is the fence %d: %v", s, fence, err)
		}
		ref, err := refOf(s)
		if err == nil && !plain(ref) || err != nil && (ref != 0 || !named(err, "ref")) {
			t.Errorf("%q is the ref %d: %v", s, ref, err)
		}
		id, err := uuidOf("job", s)
		if err == nil && id.String() != strings.ToLower(s) || err != nil && (fault.KindOf(err) != fault.NotFound ||
			!reflect.DeepEqual(id, uuid.UUID{})) {
			t.Errorf("%q is the id %s: %v", s, id, err)
		}
	})
}
