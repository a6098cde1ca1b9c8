package httpapi_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/postern-dev/postern/internal/httpapi"
	"github.com/postern-dev/postern/internal/remote"
)

const sums = `"input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
	"output_schema": {"oneOf": [{"type": "object", "properties": {"ok": {"type": "object", "required": ["sum"]}}, "required": ["ok"], "additionalProperties": false}]}`

// instrument is a tool behind HTTP whose answers a test changes.
type instrument struct {
	*httptest.Server
	meta, answer atomic.Pointer[string]
	status       atomic.Int64 // of all it answers
}

func newInstrument(t *testing.T) *instrument {
	i := &instrument{}
	i.say(&i.meta, `{"fqn": "xyz.labs.add@1", "description": "adds", "license": "of no interest", `+sums+`}`)
	i.say(&i.answer, `{"ok": {"sum": 3}}`)
	i.status.Store(200)
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(int(i.status.Load()))
		switch r.URL.Path {
		case "/meta":
			_, _ = io.WriteString(w, *i.meta.Load())
		case "/invoke":
			_, _ = io.WriteString(w, *i.answer.Load())
		}
	}))
	t.Cleanup(i.Close)
	return i
}

func (*instrument) say(p *atomic.Pointer[string], s string) { p.Store(&s) }

// callsLoopback lets an API call tools on this machine.
func callsLoopback(t *testing.T) func(*httpapi.Config) {
	c := remote.New(remote.Config{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	t.Cleanup(c.Close)
	return func(cfg *httpapi.Config) { cfg.Tools = c }
}

func TestAToolIsRegisteredByWhatItSaysOfItself(t *testing.T) {
	d := newDoor(t, callsLoopback(t))
	i := newInstrument(t)
	v := d.want(201, "PUT", "/tools/xyz.labs.add@1", `{"url": "`+i.URL+`", "timeout": "90s"}`)
	if v.str("fqn") != "xyz.labs.add@1" || v.str("description") != "adds" || v.body["discovered"] != true || v.str("timeout") != "1m30s" || v.str("ttl") != "5m" || v.str("check_every") != "30s" ||
		v.body["shared"] != false || v.header.Get("Location") != "/tools/xyz.labs.add@1" || v.header.Get("ETag") != `"1"` || !strings.Contains(v.raw, `"required":["sum"]`) {
		t.Errorf("%s", v.raw)
	}
	d.refused(404, "not_found", "GET", "/tools/add", "")
	d.want(200, "GET", "/tools/xyz.labs.add@01", "")
	if v := d.want(200, "GET", "/tools", ""); len(v.body["items"].([]any)) != 1 || strings.Contains(v.raw, "schema\":{") {
		t.Errorf("%s", v.raw)
	}
	if v := d.want(200, "POST", "/tools/xyz.labs.add@1/check", ""); !strings.Contains(v.raw, `"state":"ready"`) {
		t.Errorf("%s", v.raw)
	}
	i.status.Store(503)
	v = d.want(200, "POST", "/tools/xyz.labs.add@1/check", "")
	if h := v.body["health"].(map[string]any); h["state"] != "failing" || h["last_error"] != "the tool answered HTTP 503: want 200" || h["failures"] != 1.0 {
		t.Errorf("%s", v.raw)
	}
	d.refused(422, "invalid", "POST", "/tools/xyz.labs.add@1/refresh", "")
	i.status.Store(200)
	i.say(&i.meta, `{"fqn": "xyz.labs.add@2", `+sums+`}`)
	if p := d.want(422, "POST", "/tools/xyz.labs.add@1/refresh", ""); !strings.Contains(p.str("detail"), "it is xyz.labs.add@2 by now, and not xyz.labs.add@1") {
		t.Errorf("%s", p.raw)
	}
	if v := d.want(200, "GET", "/tools/xyz.labs.add@1", ""); !strings.Contains(v.str("refresh_error"), "xyz.labs.add@2 by now") || v.header.Get("ETag") != `"1"` {
		t.Errorf("%s", v.raw)
	}
	i.say(&i.meta, `{"fqn": "xyz.labs.add@1", "description": "adds more", `+sums+`}`)
	d.refused(412, "precondition_failed", "POST", "/tools/xyz.labs.add@1/refresh", "", `If-Match: "9"`)
	if v := d.want(200, "POST", "/tools/xyz.labs.add@1/refresh", `{"reason": "it was deployed"}`); v.str("description") != "adds more" || v.body["refresh_error"] != nil || v.header.Get("ETag") != `"2"` {
		t.Errorf("%s", v.raw)
	}
	if v := d.want(200, "PATCH", "/tools/xyz.labs.add@1", `{"ttl": "1h", "check_every": "0s"}`); v.str("ttl") != "1h" || v.str("check_every") != "0s" || v.str("timeout") != "1m30s" || v.body["discovered"] != true {
		t.Errorf("%s", v.raw)
	}
	if a := d.want(200, "GET", "/audit?object=/tools/xyz.labs.add@1&action=refresh", ""); !strings.Contains(a.raw, "it was deployed") || !strings.Contains(a.raw, "sha256:") {
		t.Errorf("%s", a.raw)
	}
	d.want(204, "DELETE", "/tools/xyz.labs.add@1", "")
	if p := d.refused(404, "not_found", "POST", "/tools/xyz.labs.add@1/check", ""); p.str("unregistered_at") == "" || !strings.Contains(p.str("detail"), p.str("unregistered_at")) {
		t.Errorf("%s", p.raw)
	}
}

func TestABrokenToolIsNotRegistered(t *testing.T) {
	d := newDoor(t, callsLoopback(t))
	i := newInstrument(t)
	at := "/tools/xyz.labs.add@1"
	for _, c := range []struct{ path, body, pointer, text string }{
		{"/tools/add@1", `{"url": "` + i.URL + `"}`, "/fqn", "Invalid tool FQN format"},
		{"/tools/_xyz.labs.add@1", `{"url": "` + i.URL + `"}`, "/fqn", "Invalid tool FQN format"},
		{"/tools/xyz.labs.a%20b@1", `{"url": "` + i.URL + `"}`, "/fqn", "Invalid tool FQN format"},
		{"/tools/xyz.labs.add@0", `{"url": "` + i.URL + `"}`, "/fqn", "Tool version cannot be zero"},
		{"/tools/xyz.labs.add@4294967296", `{"url": "` + i.URL + `"}`, "/fqn", "Tool version too large"},
		{"/tools/xyz.labs.sub@1", `{"url": "` + i.URL + `"}`, "/fqn", "it is xyz.labs.add@1 by now, and not xyz.labs.sub@1"},
		{at, `{"url": "file:///etc/passwd"}`, "/url", "want http(s)://host"},
		{at, `{"url": "` + i.URL + `", "ttl": "0s"}`, "/ttl", "from 1s to 24h"},
		{at, `{"url": "` + i.URL + `", "check_every": "-1s"}`, "/check_every", "want a duration"},
		{at, `{"url": "` + i.URL + `", "timeout": "1h"}`, "/timeout", "at most 10m"},
		{at, `{"url": "` + i.URL + `", "input_schema": true}`, "/output_schema", "output_schema is missing"},
		{at, `{"url": "` + i.URL + `", "input_schema": {"type": "integre"}, "output_schema": {"oneOf": [true]}}`, "/input_schema/type", "no schema of draft 2020-12"},
		{at, `{"url": "` + i.URL + `", "input_schema": true, "output_schema": {}}`, "/output_schema", "Please make sure to use an enum as the Tool output type."},
	} {
		if p := d.want(422, "PUT", c.path, c.body); !strings.Contains(p.raw, `"pointer":"`+c.pointer+`"`) || !strings.Contains(p.str("detail"), c.text) {
			t.Errorf("%s %s: %s", c.path, c.body, p.raw)
		}
	}
	i.say(&i.meta, `{"fqn": "xyz.labs.add@1", "input_schema": {"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "output_schema": {"oneOf": [true]}}`)
	if p := d.want(422, "PUT", at, `{"url": "`+i.URL+`"}`); !strings.Contains(p.raw, `"pointer":"/input_schema/properties/a/$ref"`) || !strings.HasPrefix(p.str("detail"), "the tool's /meta: /input_schema/properties/a/$ref: ") {
		t.Errorf("%s", p.raw)
	}
	i.say(&i.meta, `<html>`)
	if p := d.want(422, "PUT", at, `{"url": "`+i.URL+`"}`); !strings.Contains(p.str("detail"), "the tool's /meta: the meta document is no JSON") {
		t.Errorf("%s", p.raw)
	}
	d.refused(422, "address_refused", "PUT", at, `{"url": "http://169.254.169.254/"}`)
	d.refused(404, "not_found", "GET", at, "")
}

func TestAToolIsTriedOnceAndLeavesNothing(t *testing.T) {
	d := newDoor(t, callsLoopback(t))
	i := newInstrument(t)
	at := "/tools/xyz.labs.add@1"
	d.want(201, "PUT", at, `{"url": "`+i.URL+`", `+sums+`}`)
	if v := d.want(200, "POST", at+"/invoke", `{"input": {"a": 1}}`); v.str("variant") != "ok" || !strings.Contains(v.raw, `"output":{"ok":{"sum":3}}`) {
		t.Errorf("%s", v.raw)
	}
	if p := d.want(422, "POST", at+"/invoke", `{"input": {"a": "x"}}`); p.str("code") != "schema_mismatch" || !strings.Contains(p.raw, `"pointer":"/input/a"`) ||
		p.str("detail") != "Input data does not match the input schema: /a: got string, want integer" {
		t.Errorf("%s", p.raw)
	}
	i.say(&i.answer, `{"ok": {"total": 3}}`)
	if p := d.want(422, "POST", at+"/invoke", `{"input": {"a": 1}}`); p.str("code") != "schema_mismatch" || p.str("class") != "fatal" || !strings.Contains(p.str("detail"), "Output data does not match") {
		t.Errorf("%s", p.raw)
	}
	i.status.Store(500)
	if p := d.want(422, "POST", at+"/invoke", `{"input": {"a": 1}}`); p.str("code") != "invalid" || p.str("class") != "retriable" || p.str("reason") != "http_500" {
		t.Errorf("%s", p.raw)
	}
	if p := d.want(422, "POST", at+"/invoke", `{}`); !strings.Contains(p.raw, "input") {
		t.Errorf("%s", p.raw)
	}
}

// The tools of system are there for every context, which can put its own in their place, and change none of them.
func TestASharedToolIsSeenAndNotChanged(t *testing.T) {
	d := newDoor(t)
	in := "Postern-Context: system"
	d.want(201, "PUT", "/tools/xyz.labs.add@1", `{"url": "http://shared.example", `+sums+`}`, in)
	if v := d.want(200, "GET", "/tools/xyz.labs.add@1", ""); v.body["shared"] != true || v.str("url") != "http://shared.example" {
		t.Errorf("%s", v.raw)
	}
	for _, c := range [][2]string{{"PATCH", ""}, {"DELETE", ""}, {"POST", "/check"}, {"POST", "/refresh"}} {
		body := map[string]string{"PATCH": `{"timeout": "5s"}`}[c[0]]
		if p := d.want(404, c[0], "/tools/xyz.labs.add@1"+c[1], body); !strings.Contains(p.str("detail"), "it is changed in the context system") {
			t.Errorf("%s", p.raw)
		}
	}
	d.want(201, "PUT", "/tools/xyz.labs.add@1", `{"url": "http://own.example", `+sums+`}`)
	if v := d.want(200, "GET", "/tools", ""); len(v.body["items"].([]any)) != 1 || !strings.Contains(v.raw, "http://own.example") {
		t.Errorf("%s", v.raw)
	}
	if v := d.want(200, "PUT", "/tools/xyz.labs.add@1?dry_run=true", `{"url": "http://other.example", `+sums+`}`); v.str("url") != "http://other.example" {
		t.Errorf("%s", v.raw)
	}
	if v := d.want(200, "GET", "/tools/xyz.labs.add@1", ""); v.str("url") != "http://own.example" {
		t.Errorf("a trial: %s", v.raw)
	}
}
