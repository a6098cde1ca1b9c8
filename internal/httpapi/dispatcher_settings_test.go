package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
)

func TestDataIsHeldAgainstTheSchemaOfItsType(t *testing.T) {
	d := newDoor(t)
	const put = `{"worker_url": "http://127.0.0.1:9/"`
	d.want(201, "PUT", "/dispatchers/pay", put+`, "schema": {"type": "object", "required": ["cents"], "properties": {"cents": {"type": "integer", "minimum": 0}}}}`)
	if bad := d.refused(422, "invalid", "PUT", "/dispatchers/pay", put+`, "schema": {"type": "objekt"}}`); !strings.Contains(bad.raw, "/schema/type") {
		t.Error(bad.raw)
	}
	d.refused(422, "invalid", "PUT", "/dispatchers/pay", put+`, "schema": {"$ref": "file:///etc/passwd"}}`)
	if list := d.want(200, "GET", "/dispatchers", ""); strings.Contains(list.raw, `"schema"`) {
		t.Errorf("a list has schemas: %s", list.raw)
	}
	if g := d.want(200, "GET", "/dispatchers/pay", ""); g.body["schema"] == nil {
		t.Error(g.raw)
	}
	first := d.want(201, "POST", "/transactions", `{"type": "pay", "uid": "a", "data": {"cents": 1}}`)
	bad := d.refused(422, "schema_mismatch", "POST", "/transactions", `{"type": "pay", "uid": "b", "data": {"cents": -1.5}}`)
	if f := bad.body["errors"].([]any)[0].(map[string]any); f["pointer"] != "/data/cents" || !strings.Contains(bad.str("detail"), "type pay") {
		t.Error(bad.raw)
	}
	d.refused(422, "schema_mismatch", "POST", "/transactions", `{"type": "pay"}`)
	d.refused(422, "schema_mismatch", "POST", "/transactions", `{"type": "pay", "uid": "0193a000-0000-8000-8000-000000000001", "data": {}}`) // reads as an id
	several := d.call("POST", "/transactions:batch", `{"items": [{"type": "pay", "data": {"cents": 2}}, {"type": "pay", "data": {}}]}`)
	if items := several.body["items"].([]any); several.status != 207 || items[1].(map[string]any)["problem"].(map[string]any)["code"] != "schema_mismatch" {
		t.Error(several.raw)
	}
	all := d.refused(422, "schema_mismatch", "POST", "/transactions:batch", `{"atomic": true, "items": [{"type": "pay", "data": {"cents": 2}}, {"type": "pay", "data": {"cents": ""}}]}`)
	if !strings.Contains(all.raw, `"/items/1/data/cents"`) {
		t.Error(all.raw)
	}

	d.want(200, "POST", "/transactions/"+first.str("id")+"/cancel", "")
	d.refused(422, "schema_mismatch", "POST", "/transactions/"+first.str("id")+"/redrive", `{"data": {"cents": "1"}}`)
	d.want(200, "PATCH", "/dispatchers/pay", `{"schema": {"required": ["to"]}}`) // a patch adds to what there is
	d.refused(422, "schema_mismatch", "POST", "/transactions", `{"type": "pay", "data": {"cents": 1}}`)
	if same := d.want(200, "POST", "/transactions", `{"type": "pay", "uid": "a", "data": {"cents": 1}}`); same.str("id") != first.str("id") {
		t.Errorf("what was accepted is refused when it is sent again: %s", same.raw)
	}
	d.refused(409, "idempotency_conflict", "POST", "/transactions", `{"type": "pay", "uid": "a", "data": {"cents": 2}}`)
	d.want(201, "POST", "/transactions/"+first.str("id")+"/redrive", "") // as it was accepted
	if p := d.want(200, "PATCH", "/dispatchers/pay", `{"schema": null}`); p.body["schema"] != nil {
		t.Error(p.raw)
	}
	d.want(201, "POST", "/transactions", `{"type": "pay", "data": []}`)
}

// A schema is stored in jsonb's words, which have more blanks and digits than the client's.
func TestASchemaThatIsPutCanBeRun(t *testing.T) {
	d := newDoor(t)
	long := `{"maximum":1` + strings.Repeat("0", 300) + `,"enum":[1` + strings.Repeat(",1", 32_000) + `]}`
	d.want(201, "PUT", "/dispatchers/pay", `{"worker_url": "http://127.0.0.1:9/", "schema": `+long+`}`)
	d.want(201, "POST", "/transactions", `{"type": "pay", "data": 1}`)
	d.refused(422, "schema_mismatch", "POST", "/transactions", `{"type": "pay", "data": 2}`)
	d.want(200, "PATCH", "/dispatchers/pay", `{"slots": 7}`)
	d.want(200, "PUT", "/dispatchers/pay", `{"worker_url": "http://127.0.0.1:9/", "schema": {"minimum": 1e-1000}}`)
	d.want(201, "POST", "/transactions", `{"type": "pay", "data": 1}`)
}

func TestASecretIsPutAndNeverShown(t *testing.T) {
	d := newDoor(t)
	const put, secret = `{"worker_url": "http://127.0.0.1:9/"`, "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	hidden := func(a answer, signed bool) {
		t.Helper()
		if strings.Contains(a.raw, "MDEy") || strings.Contains(a.raw, `"secret"`) || a.body["signed"] != signed {
			t.Errorf("signed is not %v, or the secret is shown: %s", signed, a.raw)
		}
	}
	hidden(d.want(201, "PUT", "/dispatchers/pay", put+`, "secret": "`+secret+`"}`), true)
	hidden(d.want(200, "PUT", "/dispatchers/pay", put+`, "slots": 3}`), true)
	hidden(d.want(200, "PATCH", "/dispatchers/pay", `{"slots": 4}`), true)
	hidden(d.want(200, "PATCH", "/dispatchers/pay?dry_run=true", `{"secret": null}`), false)
	hidden(d.want(200, "GET", "/dispatchers/pay", ""), true)
	hidden(d.want(200, "PATCH", "/dispatchers/pay", `{"secret": null}`), false)
	hidden(d.want(200, "PATCH", "/dispatchers/pay", `{"secret": "`+secret+`"}`), true)
	hidden(d.want(200, "PUT", "/dispatchers/pay", put+`, "secret": ""}`), false)
	for _, wrong := range []string{`"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="`, `"whsec_MDEy"`, `7`, `"whsec_` + strings.Repeat("A", 200) + `"`} {
		if bad := d.refused(422, "invalid", "PUT", "/dispatchers/pay", put+`, "secret": `+wrong+`}`); strings.Contains(bad.raw, "MDEy") {
			t.Error(bad.raw)
		}
	}
	d.want(200, "PATCH", "/dispatchers/pay", `{"secret": "`+secret+`"}`)
	d.want(204, "DELETE", "/dispatchers/pay", "")
	hidden(d.want(201, "PUT", "/dispatchers/pay", put+`}`), false) // not that of one that was removed
	if audit := d.want(200, "GET", "/audit?limit=100", ""); strings.Contains(audit.raw, "MDEy") {
		t.Error(audit.raw)
	}
}

func TestACapabilityThatIsNoStringIsRefused(t *testing.T) {
	d := newDoor(t)
	for _, bad := range []string{`{"x": "y"}`, `["atomic"]`, `7`, `null`, `"other"`} {
		r := d.refused(422, "invalid", "PUT", "/dispatchers/pay", `{"worker_url": "http://127.0.0.1:9/", "capabilities": ["atomic", `+bad+`]}`)
		if !strings.Contains(r.raw, "/capabilities/1") {
			t.Errorf("%s: %s", bad, r.raw)
		}
	}
	d.want(201, "PUT", "/dispatchers/pay", `{"worker_url": "http://127.0.0.1:9/", "capabilities": ["atomic", "atomic"]}`)
}

func TestTheDefaultsOfRetryKeepASenderForAShortTime(t *testing.T) {
	d := newDoor(t)
	const worker = `{"worker_url": "http://127.0.0.1:9/"`
	retry := func(a answer) string {
		r := a.body["retry"].(map[string]any)
		return fmt.Sprint(r["kind"], " ", r["initial"], " x", r["factor"], " to ", r["cap"])
	}
	for _, c := range []struct{ body, retry, at string }{
		{worker + `}`, "exponential 15s x2 to 20m", ""},
		{worker + `, "pool": ""}`, "exponential 15s x2 to 20m", ""},
		{worker + `, "pool": "p"}`, "exponential 15s x2 to 1m", ""},
		{worker + `, "pool": "p", "retry": {"cap": "5m"}}`, "exponential 15s x2 to 5m", ""},
		{worker + `, "pool": "p", "retry": {"initial": "2m"}}`, "exponential 2m x2 to 2m", ""},
		{worker + `, "retry": {"initial": "1h"}}`, "exponential 1h x2 to 1h", ""},
		{worker + `, "retry": {"initial": "50h", "kind": "fixed"}}`, "fixed 50h x<nil> to <nil>", ""},
		{worker + `, "retry": {"initial": "50h", "kind": "fixed", "cap": "1s"}}`, "fixed 50h x<nil> to <nil>", ""},
		{worker + `, "retry": {"initial": "1h", "cap": "20m"}}`, "", "/retry/cap"},
		{worker + `, "retry": {"cap": "0s"}}`, "", "/retry/cap"},
		{worker + `, "retry": {"initial": "721h"}}`, "", "/retry/initial"},
	} {
		if c.at != "" {
			if r := d.refused(422, "invalid", "PUT", "/dispatchers/pay", c.body); !strings.Contains(r.raw, c.at) {
				t.Errorf("%s: %s", c.body, r.raw)
			}
			continue
		}
		a := d.call("PUT", "/dispatchers/pay", c.body)
		if a.status >= 300 || retry(a) != c.retry {
			t.Errorf("%s has retry %q, want %q: %s", c.body, retry(a), c.retry, a.raw)
		}
	}
	d.want(200, "PUT", "/dispatchers/pay", worker+`}`)
	d.refused(422, "invalid", "PATCH", "/dispatchers/pay", `{"retry": {"initial": "3h", "cap": "1h"}}`)
	for _, c := range []struct{ patch, retry string }{
		{`{"retry": {"initial": "2h"}}`, "exponential 2h x2 to 2h"},
		{`{"retry": {"initial": "3h"}}`, "exponential 3h x2 to 3h"},
		{`{"retry": {"initial": "1s", "cap": null}}`, "exponential 1s x2 to 20m"},
		{`{"pool": "p"}`, "exponential 1s x2 to 1m"}, // a cap that no request said follows the pool
		{`{"pool": null}`, "exponential 1s x2 to 20m"},
		{`{"pool": "p", "retry": {"cap": "20m"}}`, "exponential 1s x2 to 20m"},
		{`{"pool": ""}`, "exponential 1s x2 to 20m"},
		{`{"pool": "p"}`, "exponential 1s x2 to 20m"}, // one that a request said stays
		{`{"retry": {"initial": "1h"}}`, "exponential 1h x2 to 1h"},
		{`{"retry": {"kind": "fixed"}}`, "fixed 1h x<nil> to <nil>"},
		{`{"retry": {"kind": "exponential", "initial": "15s"}}`, "exponential 15s x2 to 1m"},
		{`{"pool": null, "retry": {"kind": "fixed", "initial": "50h"}}`, "fixed 50h x<nil> to <nil>"},
		{`{"retry": null}`, "exponential 15s x2 to 20m"},
		{`{"retry": {"initial": "1h"}}`, "exponential 1h x2 to 1h"},
		{`{"retry": {"initial": "1s"}}`, "exponential 1s x2 to 20m"},
		{`{"retry": {"factor": 3}}`, "exponential 1s x3 to 20m"},
		{`{"slots": 7}`, "exponential 1s x3 to 20m"},
	} {
		if a := d.want(200, "PATCH", "/dispatchers/pay", c.patch); retry(a) != c.retry {
			t.Errorf("%s: %s", c.patch, a.raw)
		}
	}
}

func TestAnAnswerSaysForHowLongOneTransactionMayHoldItsSender(t *testing.T) {
	d := newDoor(t)
	const worker = `{"worker_url": "http://127.0.0.1:9/", ` +
		`"timeouts": {"dispatch": "10s"}, "inclusion": {"deadline": "1m"}`
	a := d.want(201, "PUT", "/dispatchers/pay", worker+`}`)
	if h, there := a.body["holds_sender"]; h != nil || !there {
		t.Errorf("a type without senders: %s", a.raw)
	}
	for _, c := range []struct{ more, want string }{
		{``, "5 3m45s + 1m + 6m = 10m45s"},
		{`, "retry": {"max_retries": 0}`, "0 0s + 10s + 1m = 1m10s"},
		{`, "retry": {"max_retries": 1, "kind": "fixed", "initial": "50h"}`, "1 50h + 20s + 2m = 50h2m20s"},
		{`, "retry": {"max_retries": 10000, "kind": "fixed", "initial": "720h"}`,
			"10000 2562047h + 27h46m50s + 166h41m = 2562047h"},
	} {
		a := d.want(200, "PUT", "/dispatchers/pay", worker+`, "pool": "p"`+c.more+`}`)
		h, _ := a.body["holds_sender"].(map[string]any)
		got := fmt.Sprintf("%v %v + %v + %v = %v",
			h["retries"], h["delays"], h["calls"], h["inclusion"], h["at_most"])
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.more, got, c.want)
		}
	}
}

// The place by which transactions exclude each other is a JSON pointer: another text would find nothing, and let no
// transaction exclude another.
func TestAnExclusivePlaceIsAJSONPointer(t *testing.T) {
	d := newDoor(t)
	for exclusive, says := range map[string]string{
		`"field:/a~2"`:                         `\"/a~2\" stands for nothing: want ~0 for ~ and ~1 for /`,
		`"field:/a~"`:                          `\"~\" in the JSON pointer`,
		`{"group": "g", "by": "/~x/b"}`:        `\"~x\" in the JSON pointer`,
		`{"group": "g", "by": "zkAppAddress"}`: "want none, type",
		`"group:g:/a"`:                         `exclusive \"group:g:/a\": want \"none\"`,
	} {
		a := d.refused(422, "invalid", "PUT", "/dispatchers/pay", `{"worker_url": "noop:", "exclusive": `+exclusive+`}`)
		if !strings.Contains(a.raw, says) || !strings.Contains(a.raw, `"detail":"exclusive`) {
			t.Errorf("%s: %s", exclusive, a.raw)
		}
	}
	for _, half := range []string{`{"group":"g"}`, `{"by":"/a"}`, `["type"]`, `7`} {
		a := d.refused(422, "invalid", "PUT", "/dispatchers/pay", `{"worker_url": "noop:", "exclusive": `+half+`}`)
		want := `/exclusive: want "none", "type", "field:<JSON pointer>" or {"group": name, "by": JSON pointer}, not ` +
			half
		if a.str("detail") != want {
			t.Errorf("%s: %s", half, a.raw)
		}
	}
	d.want(201, "PUT", "/dispatchers/pay", `{"worker_url": "noop:", "exclusive": "field:/a~1b/~0c"}`)
}
