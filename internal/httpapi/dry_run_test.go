package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// rows is everything that the schema holds, so that two moments can be compared.
func (d *door) rows() string {
	d.t.Helper()
	r, err := d.store.Pool().Query(d.t.Context(), `SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'postern'::regnamespace AND c.relkind IN ('r', 'p')
		AND NOT c.relispartition AND c.relname NOT LIKE 'goose%' ORDER BY 1`)
	if err != nil {
		d.t.Fatal(err)
	}
	names, err := pgx.CollectRows(r, pgx.RowTo[string])
	if err != nil {
		d.t.Fatal(err)
	}
	var b strings.Builder
	for _, n := range names {
		var all string
		if err := d.store.Pool().QueryRow(d.t.Context(), `SELECT coalesce(string_agg(t::text, E'\n' ORDER BY t::text), '') FROM postern.`+n+` t`).Scan(&all); err != nil {
			d.t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s:\n%s\n", n, all)
	}
	return b.String()
}

// Each request is tried first, which changes no row, and then made: both answer alike.
func TestADryRunAnswersWhatWouldHappenAndChangesNothing(t *testing.T) {
	d := newDoor(t)
	d.want(201, "PUT", "/dispatchers/pay", `{"worker_url": "http://127.0.0.1:1/", "pool": "p"}`)
	d.want(201, "PUT", "/senders/acct-1", `{"pool": "p"}`)
	var ids []string
	for _, uid := range []string{"a", "b", "c"} {
		ids = append(ids, d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "q", "uid": "`+uid+`"}`).str("id"))
	}
	for _, c := range []struct {
		status             int
		method, path, body string
		shows              string // a part of the answer
	}{
		{201, "PUT", "/dispatchers/mint", `{"worker_url": "http://127.0.0.1:1/"}`, `"type":"mint"`},
		{200, "PUT", "/dispatchers/mint", `{"worker_url": "http://127.0.0.1:2/"}`, `127.0.0.1:2`},
		{200, "PATCH", "/dispatchers/mint", `{"slots": 7}`, `"slots":7`},
		{200, "POST", "/dispatchers/mint/pause", ``, `"changed":true`},
		{200, "POST", "/dispatchers/mint/resume", ``, `"changed":true`},
		{204, "DELETE", "/dispatchers/mint", ``, ``},
		{201, "PUT", "/senders/acct-2", `{"pool": "fresh"}`, `"pool":"fresh"`},
		{200, "PATCH", "/senders/acct-2", `{"attributes": {"a": 1}}`, `"a":1`},
		{200, "POST", "/senders/acct-2/block", `{"for": "1h"}`, `"changed":true`},
		{200, "POST", "/senders/acct-2/unblock", ``, `"changed":true`},
		{200, "POST", "/senders/acct-2/pause", ``, `"changed":true`},
		{200, "POST", "/senders/acct-2/drain", ``, `"changed":true`},
		{204, "DELETE", "/senders/acct-2", ``, ``},
		{200, "PUT", "/pools/fresh", `{"after_failure": "block"}`, `"after_failure":"block"`},
		{200, "PATCH", "/pools/fresh", `{"block_for": "2h"}`, `"block_for":"2h"`},
		{200, "POST", "/pools/fresh/pause", ``, `"changed":true`},
		{204, "DELETE", "/pools/fresh", ``, ``},
		{201, "PUT", "/queues/new", `{"priority": "High"}`, `"priority":"High"`},
		{200, "PATCH", "/queues/new", `{"max_depth": 3}`, `"max_depth":3`},
		{204, "DELETE", "/queues/new", ``, ``},
		{201, "PUT", "/subscriptions/s", `{"kind": "webhook", "url": "http://127.0.0.1:1/"}`, `"kind":"webhook"`},
		{200, "PATCH", "/subscriptions/s", `{"on_error": "block"}`, `"on_error":"block"`},
		{200, "POST", "/subscriptions/s/disable", ``, `"changed":true`},
		{200, "POST", "/subscriptions/s/enable", ``, `"changed":true`},
		{202, "POST", "/subscriptions/s/test", ``, `"result":"pending"`},
		{204, "DELETE", "/subscriptions/s", ``, ``},
		{200, "POST", "/queues/q/pause", `{"reason": "look"}`, `"changed":true`},
		{200, "POST", "/queues/q/pause", ``, `"changed":false`},
		{200, "POST", "/queues/q/resume", ``, `"changed":true`},
		{200, "POST", "/queues/q/drain", ``, `"changed":true`},
		{200, "POST", "/queues/q/resume", ``, `"changed":true`},
		{200, "POST", "/transactions/" + ids[2] + "/move", `{"place": "head", "reason": "look"}`, `"changed":true`},
		{200, "POST", "/transactions/" + ids[2] + "/move", `{"place": {"before": "` + ids[0] + `"}}`, `"changed":false`},
		{200, "POST", "/transactions/" + ids[2] + "/suspend", `{"reason": "look"}`, `"changed":true`},
		{200, "POST", "/transactions/" + ids[2] + "/suspend", ``, `"changed":false`},
		{200, "POST", "/transactions/" + ids[2] + "/resume", ``, `"changed":true`},
		{200, "POST", "/transactions/" + ids[1] + "/cancel", ``, `"result":"done"`},
		{200, "POST", "/transactions/" + ids[0] + "/cancel", ``, `"result":"done"`},
		{201, "POST", "/transactions/" + ids[0] + "/redrive", `{"uid": "a2"}`, `"uid":"a2"`},
		{201, "POST", "/transactions/" + ids[1] + "/redrive", `{"queue": "elsewhere"}`, `"queue":"elsewhere"`},
	} {
		before := d.rows()
		tried := d.want(c.status, c.method, c.path+"?dry_run=true", c.body)
		if after := d.rows(); after != before {
			t.Errorf("%s %s changed rows:\n%s\nthey were\n%s", c.method, c.path, after, before)
		}
		if !strings.Contains(tried.raw, c.shows) || strings.Contains(tried.raw, `"result"`) && tried.body["dry_run"] != true {
			t.Errorf("%s %s would answer %s", c.method, c.path, tried.raw)
		}
		done := d.want(c.status, c.method, c.path, c.body)
		if !strings.Contains(done.raw, c.shows) || done.body["dry_run"] != nil {
			t.Errorf("%s %s answers %s", c.method, c.path, done.raw)
		}
		if d.rows() == before {
			t.Errorf("%s %s changed nothing", c.method, c.path)
		}
		var who string
		noun, _, _ := strings.Cut(strings.TrimPrefix(c.path, "/"), "/")
		if err := d.store.Pool().QueryRow(t.Context(), `SELECT actor || ' ' || via || ' ' || reason FROM postern.audit WHERE request_id = $1 AND object LIKE '/' || $2 || '/%'`,
			done.header.Get("Postern-Request-Id"), noun).Scan(&who); err != nil || !strings.HasPrefix(who, "dev http ") || strings.Contains(c.body, `"reason"`) != strings.HasSuffix(who, " look") {
			t.Errorf("%s %s left the audit row %q: %v", c.method, c.path, who, err)
		}
	}
	d.want(200, "POST", "/transactions/"+ids[0]+"/cancel?dry_run=true", "")
	d.refused(404, "not_found", "POST", "/queues/none/pause?dry_run=true", "")
	d.refused(422, "invalid", "PUT", "/queues/x?dry_run=true", `{"pool": "none"}`)
	d.refused(422, "invalid", "GET", "/queues/q?dry_run=true", "")
	if d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "x"}`).body["position"] != 1.0 {
		t.Error("a queue that was only tried has been used")
	}
}

// 412 comes from under the lock of what is about to change, with the present version.
func TestIfMatchHoldsForEveryChange(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	d.want(201, "PUT", "/senders/acct-1", `{"pool": "p"}`)
	d.want(201, "PUT", "/queues/q", `{}`)
	id := d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "q"}`).str("id")
	for _, path := range []string{"/dispatchers/pay", "/senders/acct-1", "/pools/p", "/queues/q"} {
		etag := d.want(200, "GET", path, "").header.Get("ETag")
		d.want(200, "POST", path+"/pause", "", "If-Match: "+etag)
		now := d.want(200, "GET", path, "").header.Get("ETag")
		if now == etag || etag == "" {
			t.Errorf("%s: ETag %s after a pause, %s before", path, now, etag)
		}
		for _, action := range []string{"POST " + path + "/resume", "DELETE " + path} {
			method, p, _ := strings.Cut(action, " ")
			if a := d.refused(412, "precondition_failed", method, p, "", "If-Match: "+etag); a.header.Get("ETag") != now {
				t.Errorf("%s says version %q, not %s: %s", action, a.header.Get("ETag"), now, a.raw)
			}
		}
		d.want(200, "POST", path+"/resume", "", `If-Match: "0", `+now)
		d.refused(404, "not_found", "POST", path+"x/pause", "", `If-Match: *`)
	}
	etag := d.want(200, "GET", "/transactions/"+id, "").header.Get("ETag")
	a := d.refused(412, "precondition_failed", "POST", "/transactions/"+id+"/cancel", "", `If-Match: "other"`)
	if a.header.Get("ETag") != etag {
		t.Errorf("%s, want %s", a.raw, etag)
	}
	d.want(200, "POST", "/transactions/"+id+"/cancel", "", "If-Match: "+etag)
	d.refused(412, "precondition_failed", "POST", "/transactions/"+id+"/redrive", "", "If-Match: "+etag)
	d.want(201, "POST", "/transactions/"+id+"/redrive", "", "If-Match: *")

	d.refused(412, "precondition_failed", "PUT", "/queues/none", `{}`, `If-Match: "1"`)
	d.refused(412, "precondition_failed", "PUT", "/queues/none", `{}`, `If-Match: *`)
	d.refused(404, "not_found", "GET", "/queues/none", "")
	d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "auto"}`)
	etag = d.want(200, "GET", "/queues/auto", "").header.Get("ETag")
	d.want(201, "PUT", "/queues/auto", `{"priority": "High"}`, "If-Match: "+etag)
	d.refused(412, "precondition_failed", "PUT", "/queues/auto", `{}`, "If-Match: "+etag)
	d.refused(412, "precondition_failed", "PUT", "/queues/auto", `{}`, "If-None-Match: *")
	d.refused(412, "precondition_failed", "PUT", "/dispatchers/none", `{"worker_url": "http://x/"}`, "If-Match: *")
	d.want(200, "PUT", "/dispatchers/pay", `{"worker_url": "http://x/"}`, "If-Match: *")
}
