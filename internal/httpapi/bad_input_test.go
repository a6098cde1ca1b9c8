package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/httpapi"
)

func TestBadInputIsRefusedWithTheFieldNamed(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	data := func(n int) string { return fmt.Sprintf(`{"type": "pay", "data": %q}`, strings.Repeat("x", n-2)) }
	tags := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`"k%d": "v"`, i))
		}
		return `{"type": "pay", "tags": {` + strings.Join(list, ",") + `}}`
	}
	for _, c := range []struct {
		name   string
		status int
		code   string
		body   string
		field  string // of errors, "" if none is named
		detail string // a part of it
		header string
	}{
		{"unknown type", 422, "unknown_type", `{"type": "nope"}`, "", "PUT /dispatchers/nope", ""},
		{"unknown context", 404, "not_found", `{"type": "pay"}`, "", `no context "other"`, "Postern-Context: other"},
		{"no type", 422, "invalid", `{"queue": "q"}`, "/type", "/type: is required", ""},
		{"unknown field", 422, "invalid", `{"type": "pay", "quue": "q"}`, "/quue", "unexpected property", ""},
		{"wrongly cased field", 422, "invalid", `{"type": "pay", "Queue": "q"}`, "/Queue", "unexpected property", ""},
		{"field of another type", 422, "invalid", `{"type": "pay", "queue": 7}`, "/queue", "expected string", ""},
		{"bad name", 422, "invalid", `{"type": "pay", "queue": "a b"}`, "/queue", `not "a b"`, ""},
		{"long name", 422, "invalid", `{"type": "pay", "queue": "` + strings.Repeat("q", 201) + `"}`, "/queue", "length <= 200", ""},
		{"bad uid", 422, "invalid", `{"type": "pay", "uid": "-a"}`, "/uid", "1 to 255", ""},
		{"bad key", 422, "invalid", `{"type": "pay"}`, "Idempotency-Key", "1 to 255", "Idempotency-Key: a b"},
		{"negative number", 422, "invalid", `{"type": "pay", "max_retries": -1}`, "/max_retries", "not -1", ""},
		{"fraction", 422, "invalid", `{"type": "pay", "max_retries": 1.5}`, "/max_retries", "integer", ""},
		{"time before 1970", 422, "invalid", `{"type": "pay", "not_before": "1969-12-31T23:59:59Z"}`, "/not_before", "before 1970", ""},
		{"time far ahead", 422, "invalid", `{"type": "pay", "not_before": "2300-01-01T00:00:00Z"}`, "/not_before", "100 years", ""},
		{"year 10000", 422, "invalid", `{"type": "pay", "not_before": "10000-01-01T00:00:00Z"}`, "/not_before", "RFC 3339", ""},
		{"no time", 422, "invalid", `{"type": "pay", "not_before": "tomorrow"}`, "/not_before", "RFC 3339", ""},
		{"too many tags", 422, "invalid", tags(17), "/tags", "16", ""},
		{"unknown sender", 422, "invalid", `{"type": "pay", "sender": "nobody"}`, "/sender", "nobody", ""},
		{"large data", 413, "too_large", data(256<<10 + 1), "/data", "262144", ""},
		{"oversized body", 413, "too_large", data(1<<20 + 100), "", "1048576", ""},
		{"not JSON", 400, "malformed_json", `{"type": `, "", "ends too early", ""},
		{"trailing data", 400, "malformed_json", `{"type": "pay"} x`, "", "", ""},
		{"duplicate key", 400, "malformed_json", `{"type": "pay", "data": {"a": {"b": 1, "b": 2}}}`, "", "twice at /data/a", ""},
		{"NUL", 400, "malformed_json", `{"type": "pay", "data": {"a": "\u0000"}}`, "", "/data/a", ""},
		{"bad UTF-8", 400, "malformed_json", "{\"type\": \"pay\", \"data\": \"\xc3\x28\"}", "", "UTF-8", ""},
		{"too deep", 400, "malformed_json", `{"type": "pay", "data": ` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`, "", "deeper than 64", ""},
		{"an array", 422, "invalid", `[]`, "", "expected object", ""},
		{"no body", 400, "malformed_json", ``, "", "required", ""},
		{"a form", 415, "unsupported_media_type", `type=pay`, "", "application/json", "Content-Type: application/x-www-form-urlencoded"},
		{"a number that nobody holds", 400, "malformed_json", `{"type": "pay", "data": 1e400000}`, "", "at /data", ""},
		{"a credential", 401, "unauthenticated", `{"type": "pay"}`, "", "", "Authorization: Bearer postern_x_y"},
		{"a foreign host", 403, "forbidden", `{"type": "pay"}`, "", "localhost", "Host: evil.example"},
		{"a foreign page", 403, "forbidden", `{"type": "pay"}`, "", "foreign", "Origin: https://evil.example"},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := *d
			at.t = t
			var headers []string
			if c.header != "" {
				headers = []string{c.header}
			}
			a := at.refused(c.status, c.code, "POST", "/transactions", c.body, headers...)
			if !strings.Contains(a.str("detail"), c.detail) {
				t.Errorf("detail %q, want %q in it", a.str("detail"), c.detail)
			}
			if len(a.str("detail")) > 600 {
				t.Errorf("a detail of %d bytes", len(a.str("detail")))
			}
			if c.field != "" {
				errs, _ := a.body["errors"].([]any)
				if len(errs) != 1 || errs[0].(map[string]any)["pointer"] != c.field || errs[0].(map[string]any)["code"] == "" {
					t.Errorf("errors %v, want %s", a.body["errors"], c.field)
				}
			}
			if c.status == 401 && a.header.Get("WWW-Authenticate") == "" {
				t.Error("no WWW-Authenticate")
			}
		})
	}
	if list := d.want(200, "GET", "/transactions", "").body["items"].([]any); len(list) != 0 {
		t.Errorf("something was accepted: %v", list)
	}
}

func TestPathsAndQueriesAreCheckedToo(t *testing.T) {
	d := newDoor(t)
	d.refused(404, "not_found", "GET", "/nothing", "")
	d.refused(405, "method_not_allowed", "DELETE", "/transactions", "")
	d.refused(422, "invalid", "GET", "/transactions?quue=a", "")
	d.refused(422, "invalid", "GET", "/transactions?limit=0", "")
	d.refused(422, "invalid", "GET", "/transactions?limit=501", "")
	d.refused(422, "invalid", "GET", "/transactions?limit=-1", "")
	d.refused(422, "invalid", "GET", "/transactions?state=LOST", "")
	d.refused(422, "invalid", "GET", "/transactions?received_after=0001-01-02T00:00:00Z", "")
	if a := d.refused(422, "invalid", "GET", "/transactions?received_after=yesterday", ""); a.str("detail") !=
		`received_after: want a time as RFC 3339 writes it, such as 2026-11-20T14:04:10Z, not "yesterday"` {
		t.Error(a.raw)
	}
	d.refused(422, "invalid", "GET", "/transactions?queue=%00", "")
	d.refused(422, "invalid", "GET", "/transactions?queue=%ff", "")
	d.refused(422, "invalid", "GET", "/queues/a%20b", "")
	d.refused(422, "invalid", "GET", "/transactions?order=up", "")
	d.refused(400, "bad_cursor", "GET", "/transactions?cursor=abc", "")
	d.refused(404, "not_found", "GET", "/transactions/not-an-id", "")
	d.refused(422, "invalid", "GET", "/transactions/by-uid/x?wait=-1s", "")
	d.refused(422, "invalid", "PUT", "/dispatchers/a", `{"worker_url": "ftp://x/"}`)
	d.refused(422, "invalid", "PUT", "/dispatchers/a", `{"worker_url": "http://x/", "slots": -1}`)
	d.refused(422, "invalid", "PUT", "/dispatchers/a", `{"worker_url": "http://x/", "retry": {"initial": "-5s"}}`)
	d.refused(422, "invalid", "PUT", "/dispatchers/a", `{"worker_url": "http://x/", "retry": {"initial": 5}}`)
	d.refused(422, "invalid", "PUT", "/queues/a", `{"max_depth": -1}`)
	d.refused(422, "invalid", "PUT", "/queues/a", `{"pool": "nowhere"}`)
	d.refused(422, "invalid", "PUT", "/queues/peer:far:dev", `{"when_full": "drop_oldest"}`)
	d.refused(422, "invalid", "POST", "/senders/a/block", `{"for": "-1s"}`)
}

func TestFullPausedAndDrainingQueues(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	d.want(201, "PUT", "/queues/full", `{"max_depth": 1}`)
	d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "full"}`)
	a := d.refused(429, "queue_full", "POST", "/transactions", `{"type": "pay", "queue": "full"}`)
	if a.header.Get("Retry-After") != "2" || a.header.Get("Postern-Queue-Depth") != "1" || a.body["retryable"] != true || a.body["retry_after"] != 2.0 {
		t.Errorf("%s %v", a.raw, a.header)
	}
	d.want(201, "PUT", "/queues/paused", `{}`)
	d.want(200, "POST", "/queues/paused/pause", `{"reason": "a look at it"}`)
	d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "paused"}`)
	if q := d.want(200, "GET", "/queues/paused", ""); q.body["paused"] != true || q.body["depth"] != 1.0 {
		t.Error(q.raw)
	}
	d.want(200, "POST", "/queues/paused/drain", "")
	d.refused(409, "queue_draining", "POST", "/transactions", `{"type": "pay", "queue": "paused"}`)
	if r := d.want(200, "POST", "/queues/paused/resume", ""); r.body["changed"] != true {
		t.Error(r.raw)
	}
	d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "paused"}`)
	d.refused(409, "in_use", "DELETE", "/queues/paused", "")
}

func TestWithoutDevelopmentModeNobodyComesIn(t *testing.T) {
	d := newDoor(t, func(c *httpapi.Config) { c.Auth = "required" })
	a := d.refused(401, "unauthenticated", "GET", "/transactions", "")
	if !strings.Contains(a.str("detail"), "API key") || a.header.Get("WWW-Authenticate") == "" {
		t.Errorf("%s %v", a.raw, a.header)
	}
	d.want(200, "GET", "/livez", "")
	d.want(200, "GET", "/readyz", "")
	d.want(200, "GET", "/openapi.json", "")
}

func TestDrainingTakesNoPosts(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	id := d.want(201, "POST", "/transactions", `{"type": "pay"}`).str("id")
	d.api.Drain()
	d.api.Drain()
	a := d.refused(503, "draining", "POST", "/transactions", `{"type": "pay"}`)
	if a.header.Get("Retry-After") == "" {
		t.Error(a.header)
	}
	d.refused(503, "draining", "POST", "/transactions:batch", `{"items": [{"type": "pay"}]}`)
	r := d.want(503, "GET", "/readyz", "")
	if r.body["ready"] != false || !strings.Contains(r.raw, `"serving"`) {
		t.Error(r.raw)
	}
	d.want(200, "GET", "/livez", "")
	if w := d.want(200, "GET", "/transactions/"+id+"?wait=30s", ""); w.header.Get("Preference-Applied") != "" {
		t.Error("it waited")
	}
}
