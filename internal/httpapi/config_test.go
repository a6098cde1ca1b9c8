package httpapi_test

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/httpapi"
)

func TestDispatchersAreCreatedReplacedPatchedAndDeleted(t *testing.T) {
	d := newDoor(t)
	a := d.want(201, "PUT", "/dispatchers/pay", `{"worker_url": "http://127.0.0.1:9/", "pool": "p", "retry": {"initial": "1s"}, "idempotent": true}`)
	if a.header.Get("ETag") != `"1"` || a.header.Get("Location") != "/dispatchers/pay" || len(a.body["warnings"].([]any)) != 0 {
		t.Errorf("%s %v", a.raw, a.header)
	}
	if r := a.body["retry"].(map[string]any); r["initial"] != "1s" || r["cap"] != "1m" || r["factor"] != 2.0 {
		t.Errorf("defaults are missing: %s", a.raw)
	}
	d.refused(412, "precondition_failed", "PUT", "/dispatchers/pay", `{"worker_url": "http://x/"}`, "If-None-Match: *")
	stale := d.refused(412, "precondition_failed", "PUT", "/dispatchers/pay", `{"worker_url": "http://x/"}`, `If-Match: "7"`)
	if stale.body["version"] != 1.0 {
		t.Error(stale.raw)
	}
	b := d.want(200, "PUT", "/dispatchers/pay", `{"worker_url": "http://127.0.0.1:9/"}`, `If-Match: "1"`)
	if b.header.Get("ETag") != `"2"` || len(b.body["warnings"].([]any)) != 1 || b.body["pool"] != nil {
		t.Errorf("%s %v", b.raw, b.header)
	}
	c := d.want(200, "PATCH", "/dispatchers/pay", `{"retry": {"max_retries": 5}, "slots": 3}`, `If-Match: "2"`, "Content-Type: application/merge-patch+json")
	if r := c.body["retry"].(map[string]any); r["max_retries"] != 5.0 || r["initial"] != "15s" || c.body["slots"] != 3.0 {
		t.Error(c.raw)
	}
	c = d.want(200, "PATCH", "/dispatchers/pay", `{"retry": {"max_retries": null}, "slots": null}`)
	if r := c.body["retry"].(map[string]any); r["max_retries"] != nil || c.body["slots"] != 64.0 {
		t.Error(c.raw)
	}
	d.refused(412, "precondition_failed", "PATCH", "/dispatchers/pay", `{}`, `If-Match: "1"`)
	d.refused(422, "invalid", "PATCH", "/dispatchers/pay", `{"slots": 0}`)
	d.refused(422, "invalid", "PATCH", "/dispatchers/pay", `{"worker_url": null}`)
	d.refused(404, "not_found", "PATCH", "/dispatchers/other", `{}`)
	if p := d.want(200, "POST", "/dispatchers/pay/pause", `{"reason": "maintenance"}`); p.body["changed"] != true || p.body["result"] != "done" {
		t.Error(p.raw)
	}
	if p := d.want(200, "POST", "/dispatchers/pay/pause", ""); p.body["changed"] != false {
		t.Error(p.raw)
	}
	if g := d.want(200, "GET", "/dispatchers/pay", ""); g.body["paused"] != true {
		t.Error(g.raw)
	}
	d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "q"}`)
	d.refused(409, "in_use", "DELETE", "/dispatchers/pay", "")
	d.refused(412, "precondition_failed", "DELETE", "/dispatchers/pay?force=true", "", `If-Match: "1"`)
	d.want(204, "DELETE", "/dispatchers/pay?force=true", "")
	d.refused(404, "not_found", "GET", "/dispatchers/pay", "")
	d.refused(422, "unknown_type", "POST", "/transactions", `{"type": "pay"}`)
	if again := d.want(201, "PUT", "/dispatchers/pay", `{"worker_url": "http://127.0.0.1:9/"}`); again.body["paused"] != false {
		t.Errorf("it came back paused: %s", again.raw)
	}
}

func TestSendersAreCreatedBlockedAndDeleted(t *testing.T) {
	d := newDoor(t)
	for _, s := range []string{"acct-1", "acct-2", "acct-3"} {
		d.want(201, "PUT", "/senders/"+s, `{"pool": "p", "attributes": {"chain": "a"}}`)
	}
	first := d.want(200, "GET", "/senders?limit=2", "")
	if len(first.body["items"].([]any)) != 2 || first.str("next") == "" || !strings.Contains(first.header.Get("Link"), `rel="next"`) {
		t.Fatalf("%s %v", first.raw, first.header)
	}
	second := d.want(200, "GET", "/senders?limit=2&cursor="+first.str("next"), "")
	if len(second.body["items"].([]any)) != 1 || second.body["next"] != nil {
		t.Error(second.raw)
	}
	d.want(200, "POST", "/senders/acct-1/block", `{"for": "24h", "reason": "suspicious"}`)
	if s := d.want(200, "GET", "/senders/acct-1", ""); s.body["blocked_until"] == nil || s.str("state") != "FREE" {
		t.Error(s.raw)
	}
	if r := d.want(200, "POST", "/senders/acct-1/unblock", ""); r.body["changed"] != true {
		t.Error(r.raw)
	}
	d.want(200, "POST", "/senders/acct-1/block", "")
	if s := d.want(200, "GET", "/senders/acct-1", ""); s.body["blocked_until"] != nil || s.str("block_reason") != "blocked" {
		t.Error(s.raw)
	}
	if s := d.want(200, "PATCH", "/senders/acct-2", `{"attributes": {"chain": null, "gas": "1"}}`); s.body["attributes"].(map[string]any)["gas"] != "1" || s.str("pool") != "p" {
		t.Error(s.raw)
	}
	d.refused(422, "invalid", "PUT", "/senders/acct-9", `{}`)
	d.refused(422, "invalid", "PUT", "/senders/acct-9", `{"pool": "p", "secret_key": "hunter2"}`)
	if a := d.call("PUT", "/senders/acct-9", `{"pool": "p", "secret_key": "hunter2"}`); strings.Contains(a.raw, "hunter2") {
		t.Errorf("a secret is echoed: %s", a.raw)
	}
	d.want(204, "DELETE", "/senders/acct-2", "")
	d.refused(404, "not_found", "GET", "/senders/acct-2", "")
	d.refused(404, "not_found", "POST", "/senders/acct-2/pause", "")
}

func TestQueuesAreConfigured(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	a := d.want(201, "PUT", "/queues/a.1", `{"priority": "High", "max_depth": 5, "on_failure": "pause"}`)
	if a.str("priority") != "High" || a.body["max_depth"] != 5.0 || a.str("when_full") != "refuse" || a.str("state") != "FREE" || a.body["depth"] != 0.0 {
		t.Error(a.raw)
	}
	b := d.want(200, "PATCH", "/queues/a.1", `{"max_depth": null}`)
	if b.body["max_depth"] != nil || b.str("on_failure") != "pause" {
		t.Error(b.raw)
	}
	d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "a.2"}`)
	q := d.want(200, "GET", "/queues/a.2", "")
	if h := q.body["head"].(map[string]any); h["state"] != "WAITING" || h["id"] == "" || q.body["configured"] != false {
		t.Error(q.raw)
	}
	if l := d.want(200, "GET", "/queues?prefix=a.", "").body["items"].([]any); len(l) != 2 {
		t.Error(l)
	}
	d.refused(412, "precondition_failed", "DELETE", "/queues/a.1", "", `If-Match: "77"`)
	d.want(204, "DELETE", "/queues/a.1", "")
	d.refused(404, "not_found", "GET", "/queues/a.1", "")
	d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "a.1"}`)
	if r := d.refused(404, "not_found", "POST", "/queues/nowhere/pause", ""); !strings.Contains(r.str("detail"), "PUT /queues/nowhere with {}") {
		t.Error(r.raw)
	}
	d.want(201, "PUT", "/queues/nowhere", `{}`)
	d.want(200, "POST", "/queues/nowhere/pause", "")
	d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "nowhere"}`)
	if q := d.want(200, "GET", "/queues/nowhere", ""); q.body["paused"] != true || q.body["depth"] != 1.0 {
		t.Error(q.raw)
	}
}

func TestQueuesAreListedByWhatTheyDo(t *testing.T) {
	d := newDoor(t, func(c *httpapi.Config) { c.Limits.Examined = 4 })
	d.dispatcher("pay")
	for i, name := range []string{"a", "b", "c", "d"} {
		d.want(201, "PUT", "/queues/"+name, `{}`)
		if ids := d.post(name, i); name == "d" {
			d.want(200, "POST", "/transactions/"+ids[1]+"/cancel", "") // of three, two are left
		}
	}
	d.want(200, "POST", "/queues/b/pause", "")
	for _, c := range []struct{ query, want string }{
		{"", "abcd"},
		{"limit=2", "ab cd"},
		{"limit=3", "abc d"},
		{"state=FREE", "ab cd"}, // a page looks at two, of each a name and a row
		{"state=BLOCKED&state=RETRY", " "},
		{"paused=true", "b "},
		{"paused=false", "a cd"},
		{"paused=false&paused=true", "abcd"},
		{"min_depth=0", "abcd"},
		{"min_depth=1", "b cd"},
		{"min_depth=2", " cd"},
		{"min_depth=2&limit=1", " c d"},
		{"min_depth=3", " "},
		{"min_depth=1&paused=false&prefix=c", "c"},
	} {
		got, cursor := "", ""
		for {
			r := d.want(200, "GET", "/queues?"+c.query+cursor, "")
			for _, q := range r.body["items"].([]any) {
				got += q.(map[string]any)["name"].(string)
			}
			if r.body["next"] == nil {
				break
			}
			got, cursor = got+" ", "&cursor="+r.str("next")
		}
		got = strings.TrimRight(got, " ") // the last page may be empty
		if got != strings.TrimRight(c.want, " ") {
			t.Errorf("%s lists %q, want %q", c.query, got, c.want)
		}
	}
	d.refused(422, "invalid", "GET", "/queues?state=WAITING", "")
	d.refused(422, "invalid", "GET", "/queues?min_depth=-1", "")
	next := d.want(200, "GET", "/queues?min_depth=2", "").str("next")
	d.refused(400, "bad_cursor", "GET", "/queues?min_depth=1&cursor="+next, "")
}

func TestTheServiceDescribesItself(t *testing.T) {
	d := newDoor(t)
	if r := d.want(200, "GET", "/readyz", ""); r.body["ready"] != true || !strings.Contains(r.raw, `"database"`) {
		t.Error(r.raw)
	}
	if l := d.want(200, "GET", "/limits", ""); l.body["body_bytes"] != 1048576.0 || l.body["batch_items"] != 1000.0 {
		t.Error(l.raw)
	}
	var names []string
	for _, m := range d.want(200, "GET", "/machines", "").body["items"].([]any) {
		names = append(names, m.(map[string]any)["name"].(string))
	}
	const want = "transaction queue event channel_message batch flow job job_try message " +
		"originator originator_transaction coordinator coordinator_transaction"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("the machines are %s", got)
	}
	if m := d.want(200, "GET", "/machines/queue", ""); m.str("initial") != "FREE" || m.body["terminal"] == nil {
		t.Error(m.raw)
	}
	if m := d.want(200, "GET", "/machines/queue", "", "Accept: text/vnd.mermaid"); !strings.HasPrefix(m.raw, "stateDiagram-v2") || m.header.Get("Content-Type") != "text/vnd.mermaid" {
		t.Error(m.raw)
	}
	d.refused(404, "not_found", "GET", "/machines/none", "")
}
