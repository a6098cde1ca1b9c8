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

// A place that cannot be taken is told with the pointer to the part of it that is wrong, in a batch below its item.
func TestAPlaceIsToldWithItsPointer(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	ids := d.post("q", 3)
	other := d.post("r", 1)[0]
	done := d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "q"}`).str("id")
	d.want(200, "POST", "/transactions/"+done+"/cancel", "")
	till := "Authorization: Bearer " +
		d.want(201, "POST", "/api-keys", `{"name": "till", "role": "executor"}`).str("secret")
	pointer := func(a answer) string {
		list, _ := a.body["errors"].([]any)
		if len(list) == 0 {
			return "none"
		}
		at, _ := list[0].(map[string]any)["pointer"].(string)
		return at
	}
	for _, c := range []struct {
		place, want string
		status      int
		headers     []string
	}{
		{`"tail"`, "/place", 422, nil},
		{`7`, "/place", 422, nil},
		{`{"before": "x"}`, "/place/before", 422, nil},
		{`{"after": "x"}`, "/place/after", 422, nil},
		{`{"before": "` + other + `"}`, "/place/before", 422, nil},
		{`{"after": "` + done + `"}`, "/place/after", 409, nil},
		{`"head"`, "/place", 403, []string{till}},
	} {
		item := `{"type": "pay", "queue": "q", "place": ` + c.place + `}`
		if a := d.call("POST", "/transactions", item, c.headers...); a.status != c.status || pointer(a) != c.want {
			t.Errorf("%s: %d at %s, want %s: %s", c.place, a.status, pointer(a), c.want, a.raw)
		}
		batch := `{"atomic": true, "items": [{"type": "pay", "queue": "q"}, ` + item + `]}`
		a := d.call("POST", "/transactions:batch", batch, c.headers...)
		if a.status != c.status || pointer(a) != "/items/1"+c.want {
			t.Errorf("in a batch, %s: %d at %s, want %s: %s", c.place, a.status, pointer(a), c.want, a.raw)
		}
		if c.status == 403 {
			continue
		}
		a = d.call("POST", "/transactions/"+ids[2]+"/move", `{"place": `+c.place+`}`)
		if a.status != c.status || pointer(a) != c.want {
			t.Errorf("moved, %s: %d at %s, want %s: %s", c.place, a.status, pointer(a), c.want, a.raw)
		}
	}
}
