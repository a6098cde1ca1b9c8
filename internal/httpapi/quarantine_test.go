package httpapi_test

import (
	"slices"
	"strings"
	"testing"
)

// Transactions of a scope in quarantine are accepted, read and explained, and why names the lever that ends it. No
// worker is called.
func TestWhatIsInQuarantineSaysSo(t *testing.T) {
	d := newDoor(t)
	d.dispatcher("pay")
	d.want(201, "PUT", "/dispatchers/other", `{"worker_url": "http://127.0.0.1:1/"}`)
	before := d.rows()
	if a := d.want(200, "POST", "/quarantine/enter?dry_run=true", `{"reason": "to see"}`); a.body["dry_run"] != true || d.rows() != before {
		t.Errorf("a dry run answers %s, and changed rows: %v", a.raw, d.rows() != before)
	}
	d.refused(422, "invalid", "POST", "/quarantine/enter", `{}`)
	d.refused(404, "not_found", "POST", "/quarantine/enter", `{"type": "none", "reason": "x"}`)
	d.refused(404, "not_found", "POST", "/quarantine/enter", `{"context": "none", "reason": "x"}`)
	d.want(200, "POST", "/quarantine/enter", `{"reason": "restored"}`)
	id := d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "q"}`).str("id")
	why := d.want(200, "GET", "/transactions/"+id+"/why", "")
	for _, part := range []string{`"quarantined"`, "everything is in quarantine, entered by dev", "restored", "/quarantine/release"} {
		if !strings.Contains(why.raw, part) {
			t.Errorf("why does not say %s: %s", part, why.raw)
		}
	}
	levers := func() (paths []string) {
		why := d.want(200, "GET", "/transactions/"+id+"/why", "")
		for _, l := range why.body["blockers"].([]any)[0].(map[string]any)["levers"].([]any) {
			paths = append(paths, l.(map[string]any)["path"].(string))
		}
		return paths
	}
	if got := levers(); !slices.Equal(got, []string{"/quarantine", "/quarantine/reconcile", "/quarantine/release"}) {
		t.Errorf("the levers of why are %v", got)
	}
	if why.body["moving"] != false {
		t.Error("why says that it moves")
	}
	d.refused(409, "quarantined", "POST", "/dispatchers/pay/check", "")
	status := d.want(200, "GET", "/quarantine", "")
	item := status.body["items"].([]any)[0].(map[string]any)
	if item["by"] != "dev" || item["reason"] != "restored" || item["context"] != nil || item["next_step"] != "postern quarantine reconcile" ||
		item["lost_from"] == nil || item["lost_until"] == nil {
		t.Errorf("the status says %s", status.raw)
	}
	if w := status.body["waiting"].([]any)[0].(map[string]any); w["type"] != "pay" || w["transactions"] != 1.0 {
		t.Errorf("of what waits it says %v", w)
	}
	d.refused(409, "not_reconciled", "POST", "/quarantine/release", `{"reason": "now"}`)
	d.refused(409, "wrong_state", "POST", "/quarantine/release", `{"reason": "now", "type": "pay"}`)
	d.want(200, "POST", "/quarantine/enter", `{"reason": "its worker is a copy", "type": "pay"}`)
	d.want(200, "POST", "/quarantine/release", `{"reason": "now", "anyway": true}`)
	if got := levers(); !slices.Equal(got, []string{"/quarantine", "/quarantine/release"}) {
		t.Errorf("where nothing is lost the levers of why are %v", got)
	}
	if a := d.refused(409, "wrong_state", "POST", "/quarantine/release", `{"reason": "now"}`); !strings.Contains(a.str("detail"), "there is no quarantine of everything") {
		t.Errorf("the release of everything is refused with %s", a.raw)
	}
	d.want(200, "POST", "/quarantine/release", `{"reason": "now", "type": "pay"}`)
	d.want(200, "POST", "/quarantine/enter", `{"reason": "restored"}`)
	d.want(200, "POST", "/quarantine/release", `{"reason": "now", "anyway": true}`)
	if raw := d.want(200, "GET", "/transactions/"+id+"/why", "").raw; strings.Contains(raw, "quarantined") {
		t.Errorf("after the release why says %s", raw)
	}
}
