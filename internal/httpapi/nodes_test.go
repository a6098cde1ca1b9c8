package httpapi_test

import "testing"

func TestNodesAreShownDrainedAndBuried(t *testing.T) {
	d := newDoor(t)
	if l := d.want(200, "GET", "/nodes", ""); l.raw != `{"items":[],"next":null}`+"\n" {
		t.Error(l.raw)
	}
	d.node()
	d.dispatcher("pay")
	id := d.post("q", 1)[0]
	n := d.want(200, "GET", "/nodes/n", "")
	if n.str("state") != "live" || n.str("version") != "test" || n.body["epoch"] != 1.0 ||
		n.body["draining"] != false || n.str("ttl") != "1m0s" || n.body["as_of"] != nil {
		t.Error(n.raw)
	}
	if r := d.want(202, "POST", "/nodes/n/drain?dry_run=true", ""); r.body["changed"] != true {
		t.Error(r.raw)
	}
	d.refused(412, "precondition_failed", "POST", "/nodes/n/drain", "", `If-Match: "9"`)
	if r := d.want(202, "POST", "/nodes/n/drain", `{"reason": "a new disk"}`,
		"If-Match: "+n.header.Get("ETag")); r.str("result") != "pending" || r.str("at") == "" {
		t.Error(r.raw)
	}
	if r := d.want(200, "POST", "/nodes/n/drain", ""); r.body["changed"] != false {
		t.Error(r.raw)
	}
	w := d.want(200, "GET", "/transactions/"+id+"/why", "").body["blockers"].([]any)[0].(map[string]any)
	if w["kind"] != "no_live_node" || w["object"] != "/nodes/n" {
		t.Error(w)
	}
	d.want(200, "POST", "/nodes/n/resume", "")
	if r := d.want(200, "POST", "/nodes/n/bury", `{"reason": "the machine is off"}`); r.body["changed"] != true {
		t.Error(r.raw)
	}
	n = d.want(200, "GET", "/nodes/n", "")
	if n.str("state") != "dead" || n.body["epoch"] != 2.0 || n.str("dead_at") == "" {
		t.Error(n.raw)
	}
	d.refused(409, "wrong_state", "POST", "/nodes/n/drain", "")
	d.refused(404, "not_found", "GET", "/nodes/m", "")
	d.node()
	if n := d.want(200, "GET", "/nodes/n", ""); n.str("state") != "live" {
		t.Errorf("of two the one that lives is meant: %s", n.raw)
	}
	for query, want := range map[string]int{"live": 1, "dead": 1, "silent": 0, "live&state=dead": 2} {
		if l := d.want(200, "GET", "/nodes?state="+query, ""); len(l.body["items"].([]any)) != want {
			t.Errorf("%s: %s", query, l.raw)
		}
	}
	d.refused(422, "invalid", "GET", "/nodes?state=lively", "")
	if l := d.want(200, "GET", "/nodes?limit=1", ""); len(l.body["items"].([]any)) != 1 || l.str("next") == "" {
		t.Error(l.raw)
	} else if l = d.want(200, "GET", "/nodes?cursor="+l.str("next"),
		""); len(l.body["items"].([]any)) != 1 || l.body["next"] != nil {
		t.Error(l.raw)
	}
}
