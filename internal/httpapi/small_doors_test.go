package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
)

// A body that is compressed, or begins with a byte order mark, is refused by the name of that.
func TestBodiesInAnotherFormAreRefusedByItsName(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	for _, encoding := range []string{"gzip", "br", "deflate"} {
		p := d.refused(415, "unsupported_media_type", "POST", "/transactions", `{"type": "pay"}`,
			"Content-Encoding: "+encoding)
		if detail, _ := p.body["detail"].(string); !strings.Contains(detail, encoding) {
			t.Error(detail)
		}
	}
	d.want(201, "POST", "/transactions", `{"type": "pay"}`, "Content-Encoding: identity")
	p := d.refused(400, "malformed_json", "POST", "/transactions", "\ufeff"+`{"type": "pay"}`)
	if detail, _ := p.body["detail"].(string); !strings.Contains(detail, "byte order mark") {
		t.Error(detail)
	}
}

// HEAD answers as GET does, without the body. A stream has none.
func TestHeadIsWhereverGetIs(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	for _, path := range []string{
		"/livez", "/readyz", "/transactions", "/queues", "/dispatchers/pay", "/audit", "/limits", "/openapi.json",
	} {
		want, got := d.call("GET", path, ""), d.call("HEAD", path, "")
		if got.status != want.status || got.raw != "" {
			t.Errorf("HEAD %s: %d with %q, and GET %d", path, got.status, got.raw, want.status)
		}
	}
	if got := d.call("HEAD", "/dispatchers/none", ""); got.status != http.StatusNotFound {
		t.Errorf("%d", got.status)
	}
	if got := d.call("HEAD", "/transactions:stream", ""); got.status == http.StatusOK {
		t.Errorf("a stream answers HEAD with %d", got.status)
	}
}

// A transaction that is cancelled stays so: to ask again is no error, since the first answer may have been lost.
func TestACancelledTransactionIsCancelledAgainWithoutAChange(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	id, _ := d.want(201, "POST", "/transactions", `{"type": "pay"}`).body["id"].(string)
	d.want(200, "POST", "/transactions/"+id+"/cancel", "")
	a := d.want(200, "POST", "/transactions/"+id+"/cancel", "")
	if a.body["changed"] != false || d.want(200, "GET", "/transactions/"+id, "").body["state"] != "CANCELLED" {
		t.Errorf("%v", a.body)
	}
}

// The audit is told in both directions, and a page of one direction is no page of the other.
func TestTheAuditIsToldInBothDirections(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	d.want(200, "POST", "/dispatchers/pay/pause", "")
	d.want(200, "POST", "/dispatchers/pay/resume", "")
	var actions []string
	for path := "/audit?order=asc&limit=1&object=/dispatchers/pay"; path != ""; {
		page := d.want(200, "GET", path, "").body
		for _, item := range page["items"].([]any) {
			actions = append(actions, item.(map[string]any)["action"].(string))
		}
		next, _ := page["next"].(string)
		if path = ""; next != "" {
			path = "/audit?order=asc&limit=1&object=/dispatchers/pay&cursor=" + next
			d.refused(400, "bad_cursor", "GET", "/audit?order=desc&limit=1&object=/dispatchers/pay&cursor="+next, "")
		}
	}
	if got := strings.Join(actions, " "); !strings.HasSuffix(got, "pause resume") {
		t.Error(got)
	}
}

// A page of another site can send text/plain without asking, and asks before it sends JSON. Neither reaches a route
// that writes.
func TestAForeignPageReachesNothingThatWrites(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	for _, origin := range []string{"https://evil.example", "null"} {
		for _, c := range []struct{ method, path, body string }{
			{"POST", "/transactions", `{"type": "pay"}`},
			{"POST", "/dispatchers/pay/pause", ``},
			{"OPTIONS", "/transactions", ``},
			{"OPTIONS", "/dispatchers/pay", ``},
		} {
			a := d.call(c.method, c.path, c.body, "Origin: "+origin, "Content-Type: text/plain",
				"Access-Control-Request-Method: POST")
			if a.status < 400 || a.header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s %s from %s: %d", c.method, c.path, origin, a.status)
			}
		}
	}
	d.refused(415, "unsupported_media_type", "POST", "/transactions", `{"type": "pay"}`, "Content-Type: text/plain")
	if list := d.want(200, "GET", "/transactions", "").body["items"].([]any); len(list) != 0 {
		t.Errorf("%v", list)
	}
}
