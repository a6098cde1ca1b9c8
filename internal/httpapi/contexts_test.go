package httpapi_test

import (
	"slices"
	"strings"
	"testing"
)

func TestContextsAreCreatedChangedAndDeleted(t *testing.T) {
	d := newDoor(t)
	a := d.want(201, "PUT", "/contexts/shop", `{"max_depth": 2, "require_key": true}`)
	if a.header.Get("ETag") != `"1"` || a.header.Get("Location") != "/contexts/shop" || a.body["max_depth"] != 2.0 || a.raw == "" || len(a.body["admins"].([]any)) != 0 {
		t.Error(a.raw)
	}
	d.refused(412, "precondition_failed", "PUT", "/contexts/shop", `{}`, "If-None-Match: *")
	d.refused(428, "precondition_required", "PATCH", "/contexts/shop", `{"require_key": false}`)
	d.refused(412, "precondition_failed", "PATCH", "/contexts/shop", `{"require_key": false}`, `If-Match: "9"`)
	b := d.want(200, "PATCH", "/contexts/shop", `{"declared_queues": true}`, `If-Match: "1"`)
	if b.body["require_key"] != true || b.body["declared_queues"] != true || b.body["max_depth"] != 2.0 {
		t.Error(b.raw)
	}
	d.refused(422, "invalid", "PUT", "/contexts/shop", `{"admins": ["nobody-knows"]}`)
	d.refused(422, "invalid", "PUT", "/contexts/shop", `{"rate": 5}`)
	in := "Postern-Context: shop"
	d.want(201, "PUT", "/dispatchers/pay", `{"worker_url": "http://127.0.0.1:1/"}`, in)
	d.refused(400, "key_required", "POST", "/transactions", `{"type": "pay", "queue": "q"}`, in)
	d.refused(422, "unknown_queue", "POST", "/transactions", `{"type": "pay", "queue": "q"}`, in, "Idempotency-Key: a")
	batch := d.want(207, "POST", "/transactions:batch", `{"items": [{"type": "pay", "uid": "b"}, {"type": "pay"}, {"type": "pay", "queue": "q", "uid": "c"}]}`, in)
	for i, want := range []string{`"status":201`, `key_required`, `unknown_queue`} {
		if !strings.Contains(batch.raw, want) {
			t.Errorf("item %d: %s", i, batch.raw)
		}
	}
	d.want(201, "PUT", "/queues/q", `{}`, in)
	for _, key := range []string{"a", "c"} {
		d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "q"}`, in, "Idempotency-Key: "+key)
	}
	d.refused(429, "queue_full", "POST", "/transactions", `{"type": "pay", "queue": "q"}`, in, "Idempotency-Key: d")
	d.want(201, "PUT", "/dispatchers/pay", `{"worker_url": "http://127.0.0.1:1/"}`) // the same names in another context are others
	d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "q"}`, "Idempotency-Key: a")

	d.refused(409, "in_use", "DELETE", "/contexts/shop", "")
	d.refused(409, "in_use", "DELETE", "/contexts/system", "")
	d.want(201, "PUT", "/contexts/empty", `{}`)
	key := d.want(201, "POST", "/api-keys", `{"name": "k", "role": "admin"}`, "Postern-Context: empty").str("secret")
	d.want(200, "GET", "/queues", "", "Authorization: Bearer "+key)
	if l := d.want(200, "GET", "/contexts", "", "Authorization: Bearer "+key); len(l.body["items"].([]any)) != 1 {
		t.Error(l.raw)
	}
	d.want(204, "DELETE", "/contexts/empty", "")
	d.refused(401, "unauthenticated", "GET", "/queues", "", "Authorization: Bearer "+key)
	d.refused(404, "not_found", "GET", "/contexts/empty", "")
	d.refused(404, "not_found", "GET", "/queues", "", "Postern-Context: empty")
	if l := d.want(200, "GET", "/contexts?limit=2", ""); len(l.body["items"].([]any)) != 2 || l.str("next") == "" {
		t.Error(l.raw)
	} else if l := d.want(200, "GET", "/contexts?limit=2&cursor="+l.str("next"), ""); len(l.body["items"].([]any)) != 1 || l.body["next"] != nil {
		t.Error(l.raw)
	}
	if a := d.want(201, "PUT", "/contexts/empty", `{}`); a.header.Get("ETag") == `"1"` {
		t.Error("a context that comes back begins with the version of another one: " + a.raw)
	}
}

func TestMembersComeAndGoButTheLastAdminStays(t *testing.T) {
	d := newDoor(t)
	ann := d.want(201, "POST", "/actors", `{"own_context": "anns"}`).str("id")
	bob := d.want(201, "POST", "/actors", `{}`).str("id")
	if c := d.want(200, "GET", "/contexts/anns", ""); len(c.body["admins"].([]any)) != 1 || c.body["admins"].([]any)[0] != ann {
		t.Error(c.raw)
	}
	d.refused(409, "in_use", "POST", "/actors", `{"own_context": "anns"}`)
	d.refused(409, "wrong_state", "DELETE", "/contexts/anns/members/"+ann, "")
	d.refused(409, "wrong_state", "PUT", "/contexts/anns/members/"+ann, `{"roles": ["reader"]}`)
	d.refused(409, "wrong_state", "PUT", "/contexts/anns", `{"admins": []}`)
	d.refused(409, "wrong_state", "PUT", "/contexts/anns", `{"readers": []}`)
	d.refused(404, "not_found", "PUT", "/contexts/anns/members/nobody", `{"roles": ["reader"]}`)
	d.refused(404, "not_found", "DELETE", "/contexts/anns/members/"+bob, "")
	d.refused(422, "invalid", "PUT", "/contexts/anns/members/"+bob, `{"roles": ["owner"]}`)
	d.want(200, "PUT", "/contexts/anns/members/"+bob, `{"roles": ["reader", "admin"]}`)
	d.want(204, "DELETE", "/contexts/anns/members/"+ann, "")
	d.refused(409, "in_use", "DELETE", "/actors/"+bob, "")
	d.want(204, "DELETE", "/actors/"+ann, "")
	if b := d.want(200, "GET", "/actors/"+bob, ""); b.body["roles"].(map[string]any)["anns"] != "admin" {
		t.Error(b.raw)
	}
	a := d.want(200, "GET", "/audit?object=/contexts/anns/members/"+ann, "", "Postern-Context: anns").body["items"].([]any)
	if len(a) != 1 || a[0].(map[string]any)["before"].([]any)[0] != "admin" || len(a[0].(map[string]any)["after"].([]any)) != 0 {
		t.Error(a)
	}
}

func TestActorsHaveKeysAddressesAndAnIdentity(t *testing.T) {
	d := newDoor(t)
	const key1, key2 = "O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik=", "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
	body := `{"public_keys": ["` + key1 + `"], "address": ["https://node.example"], "oidc": {"issuer": "https://id.example", "subject": "ann"}}`
	a := d.want(201, "POST", "/actors", body, "Idempotency-Key: ann")
	if b := d.want(200, "POST", "/actors", body, "Idempotency-Key: ann"); b.str("id") != a.str("id") || b.header.Get("Idempotent-Replay") != "true" {
		t.Error(b.raw)
	}
	d.refused(409, "in_use", "POST", "/actors", `{"oidc": {"issuer": "https://id.example", "subject": "ann"}}`)
	d.refused(422, "invalid", "POST", "/actors", `{"public_keys": ["AAAA"]}`)
	d.refused(422, "invalid", "POST", "/actors", `{"public_keys": ["`+key1+`", "`+key1+`", "`+key1+`"]}`)
	d.refused(422, "invalid", "POST", "/actors", `{"address": ["ftp://x"]}`)
	id := a.str("id")
	if b := d.want(200, "PATCH", "/actors/"+id, `{"oidc": null}`); len(b.body["public_keys"].([]any)) != 1 ||
		b.body["oidc"] != nil || len(b.body["address"].([]any)) != 1 {
		t.Error(b.raw)
	}
	d.refused(422, "invalid", "PATCH", "/actors/"+id, `{"public_keys": ["`+key2+`"]}`) // the new key proves that it is there
	d.refused(409, "in_use", "POST", "/actors", `{"public_keys": ["`+key1+`"]}`)
	d.refused(412, "precondition_failed", "DELETE", "/actors/"+id, "", `If-Match: "1"`)
	if l := d.want(200, "GET", "/actors", ""); len(l.body["items"].([]any)) != 1 {
		t.Error(l.raw)
	}
	d.want(204, "DELETE", "/actors/"+id, "")
	d.refused(404, "not_found", "GET", "/actors/"+id, "")
}

func TestTheAuditSaysWhoDidWhat(t *testing.T) {
	d := newDoor(t)
	d.want(201, "PUT", "/queues/q", `{}`)
	for range 3 {
		d.want(200, "POST", "/queues/q/pause", `{"reason": "because"}`)
	}
	d.want(200, "POST", "/queues/q/resume", "")
	var actions []string
	next := ""
	for page := 0; page < 10; page++ {
		l := d.want(200, "GET", "/audit?object=/queues/q&limit=2&cursor="+next, "")
		for _, i := range l.body["items"].([]any) {
			r := i.(map[string]any)
			if actions = append(actions, r["action"].(string)); r["actor"] != "dev" || r["via"] != "http" || r["request_id"] == "" {
				t.Error(r)
			}
		}
		if next = l.str("next"); next == "" {
			break
		}
	}
	if !slices.Equal(actions, []string{"resume", "pause", "pause", "pause", "put"}) {
		t.Error(actions)
	}
	if l := d.want(200, "GET", "/audit?action=pause&actor=dev&at_before=2001-01-01T00:00:00Z", ""); len(l.body["items"].([]any)) != 0 {
		t.Error(l.raw)
	}
	d.refused(400, "bad_cursor", "GET", "/audit?cursor="+"abc", "")
	if l := d.want(200, "GET", "/audit", "", "Postern-Context: system"); len(l.body["items"].([]any)) != 0 {
		t.Error("the levers of another context: " + l.raw)
	}
	d.want(201, "PUT", "/contexts/shop", `{"max_depth": 5}`)
	d.want(200, "PUT", "/contexts/shop", `{"max_depth": 6}`)
	r := d.want(200, "GET", "/audit?limit=1", "", "Postern-Context: shop").body["items"].([]any)[0].(map[string]any)
	if r["before"].(map[string]any)["max_depth"] != 5.0 || r["after"].(map[string]any)["max_depth"] != 6.0 || r["object"] != "/contexts/shop" {
		t.Error(r)
	}
}

// A context that wants a key of each post, and declared queues only, wants them of jobs and flows, too: these are named
// by a key, or by a ref, which is their caller's own.
func TestAContextAsksJobsAndFlowsForWhatItAsksTransactions(t *testing.T) {
	d := newDoor(t)
	d.want(201, "PUT", "/contexts/shop", `{"require_key": true, "declared_queues": true}`)
	d.want(201, "PUT", "/queues/q", `{}`, "Postern-Context: shop")
	const in, key = "Postern-Context: shop", "Idempotency-Key: a"
	job := func(more string) string { return `{"script": "1", "script_type": "python"` + more + `}` }
	flow := func(more, job string) string { return `{"jobs": [` + job + `]` + more + `}` }
	one := job(`, "ref": 1`)
	elsewhere := job(`, "ref": 1, "queue": "r"`)
	d.refused(400, "key_required", "POST", "/jobs", job(""), in)
	d.refused(422, "unknown_queue", "POST", "/jobs", job(`, "queue": "r"`), in, key)
	d.refused(400, "key_required", "POST", "/flows", flow("", one), in)
	d.refused(422, "unknown_queue", "POST", "/flows", flow("", elsewhere), in, key)
	d.refused(422, "unknown_queue", "POST", "/flows:validate", flow("", elsewhere), in)
	if n := len(d.want(200, "GET", "/jobs", "", in).body["items"].([]any)); n != 0 {
		t.Errorf("%d jobs were stored", n)
	}
	d.want(201, "POST", "/jobs", job(`, "queue": "q"`), in, key)
	d.want(200, "POST", "/jobs", job(`, "queue": "q"`), in, key)
	d.want(201, "POST", "/jobs", job(`, "ref": 7`), in)
	d.want(201, "POST", "/flows", flow(`, "ref": 7`, one), in)
	f := d.want(201, "POST", "/flows", flow("", one), in, key)
	path := "/flows/" + f.str("id")
	d.refused(422, "unknown_queue", "POST", path+"/jobs", flow("", job(`, "ref": 2, "queue": "r"`)), in)
	d.want(200, "POST", path+"/cancel", `{}`, in)
	d.refused(400, "key_required", "POST", path+"/redrive", `{}`, in)
	d.want(201, "POST", path+"/redrive", `{"ref": 8}`, in)
	d.want(200, "POST", path+"/redrive", `{"ref": 8}`, in)
	again := d.want(201, "POST", path+"/redrive", `{}`, in, "Idempotency-Key: b")
	same := d.want(200, "POST", path+"/redrive", `{}`, in, "Idempotency-Key: b")
	if same.str("id") != again.str("id") || same.header.Get("Idempotent-Replay") != "true" {
		t.Errorf("the same key again: %s and %s", again.raw, same.raw)
	}
	d.refused(409, "idempotency_conflict", "POST", path+"/redrive", `{"env_vars": {"A": "1"}}`, in,
		"Idempotency-Key: b")
	d.want(201, "POST", "/jobs", job("")) // another context asks for nothing
}
