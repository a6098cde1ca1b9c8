package httpapi_test

import "testing"

func TestPoolsComeWithTheirFirstSenderAndAreConfigured(t *testing.T) {
	d := newDoor(t)
	d.refused(404, "not_found", "GET", "/pools/caps", "")
	d.want(201, "PUT", "/senders/cap-1", `{"pool": "caps"}`)
	d.want(201, "PUT", "/senders/cap-2", `{"pool": "caps"}`)
	p := d.want(200, "GET", "/pools/caps", "")
	if p.str("after_failure") != "keep" || p.str("block_for") != "24h" || p.body["free"] != 2.0 ||
		p.body["paused"] != false || p.header.Get("ETag") != `"1"` {
		t.Errorf("%s %v", p.raw, p.header)
	}
	p = d.want(200, "PUT", "/pools/caps", `{"after_failure": "block", "block_for": "90s"}`, `If-Match: "1"`)
	if p.str("after_failure") != "block" || p.str("block_for") != "1m30s" || p.header.Get("ETag") != `"2"` {
		t.Error(p.raw)
	}
	p = d.want(200, "PATCH", "/pools/caps", `{"block_for": null}`)
	if p.str("block_for") != "24h" || p.str("after_failure") != "block" {
		t.Error(p.raw)
	}
	d.refused(412, "precondition_failed", "PUT", "/pools/caps", `{}`, `If-Match: "1"`)
	d.refused(412, "precondition_failed", "PUT", "/pools/caps", `{}`, "If-None-Match: *")
	d.refused(422, "invalid", "PUT", "/pools/caps", `{"after_failure": "forget"}`)
	d.refused(422, "invalid", "PUT", "/pools/caps", `{"block_for": "0s"}`)
	d.refused(422, "invalid", "PUT", "/pools/caps", `{"name": "other"}`)
	d.node()
	d.want(200, "POST", "/senders/cap-1/block", "")
	d.want(200, "POST", "/pools/caps/pause", `{"reason": "audit"}`)
	d.want(201, "PUT", "/dispatchers/R", `{"worker_url": "http://127.0.0.1:9/", "pool": "caps"}`)
	d.want(201, "POST", "/transactions", `{"type": "R", "queue": "q"}`)
	p = d.want(200, "GET", "/pools/caps", "")
	if p.body["free"] != 1.0 || p.body["blocked"] != 1.0 || p.body["waiting"] != 1.0 || p.body["paused"] != true {
		t.Error(p.raw)
	}
	w := d.want(200, "GET", "/queues/q/why", "").body["blockers"].([]any)[0].(map[string]any)
	if w["kind"] != "no_free_sender" || w["object"] != "/pools/caps" ||
		w["detail"] != "pool caps is paused by dev: audit" {
		t.Error(w)
	}
	if r := d.want(200, "POST", "/pools/caps/resume", ""); r.body["changed"] != true {
		t.Error(r.raw)
	}
	d.refused(409, "in_use", "DELETE", "/pools/caps", "")
	d.refused(404, "not_found", "POST", "/pools/none/pause", "")
	d.want(201, "PUT", "/pools/early", `{"after_failure": "block"}`)
	if l := d.want(200, "GET", "/pools?limit=1", ""); len(l.body["items"].([]any)) != 1 || l.str("next") == "" {
		t.Error(l.raw)
	}
	d.want(204, "DELETE", "/pools/early", "")
	d.refused(404, "not_found", "DELETE", "/pools/early", "")
}
