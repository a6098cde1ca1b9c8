package app_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/runner"
)

// Jobs are added to a flow while it runs, and removed before they start.
func TestAFlowIsChangedWhileItRuns(t *testing.T) {
	b := newJobBench(t)
	r := b.runner("r")
	f := b.flow(`{"start": true, "jobs": [{P, "ref": 1}, {P, "ref": 2, "dependends": [1]}]}`)
	at := fmt.Sprint(b.url, "/flows/", f["id"])
	r.does(r.takes(1), map[string]string{"k": "1"})
	two := r.takes(1)
	p := `"script": "1", "script_type": "python"`
	v := want(t, 200, "POST", at+"/jobs", `{"jobs": [{`+p+`, "ref": 3, "dependends": [1]},
		{`+p+`, "ref": 4, "dependends": [2, 3]}, {`+p+`, "ref": 5, "dependends": [4]}]}`)
	if v["job_count"] != 5.0 {
		t.Errorf("%v", v)
	}
	want(t, 422, "POST", at+"/jobs", `{"jobs": [{`+p+`, "ref": 1}]}`)
	three := r.takes(1)
	for _, j := range three {
		if string(j.Inputs) != `{"1":{"k":"1"}}` {
			t.Errorf("%s", j.Inputs)
		}
	}
	want(t, 409, "DELETE", at+"/jobs/3", "")
	if v := want(t, 409, "DELETE", at+"/jobs/4", ""); !strings.Contains(fmt.Sprint(v["detail"]), "job 5") {
		t.Errorf("%v", v)
	}
	want(t, 404, "DELETE", at+"/jobs/77", "")
	if status, text := b.call("DELETE", "/flows/"+fmt.Sprint(f["id"])+"/jobs/5", nil, 0); status != 204 {
		t.Errorf("%d %s", status, text)
	}
	r.does(two, nil)
	r.does(three, nil)
	r.does(r.takes(1), nil)
	if v := b.flowEnds(f); v["status"] != "finished" || v["job_count"] != 4.0 || len(jobsOf(v)) != 4 {
		t.Errorf("%v", v)
	}
	want(t, 409, "POST", at+"/jobs", `{"jobs": [{`+p+`, "ref": 9}]}`)

	empty := b.flow(`{"start": true}`)
	if empty["status"] != "finished" || fmt.Sprint(empty["result"]) != "map[]" {
		t.Errorf("%v", empty)
	}
}

// A flow that is cancelled leaves nothing open: offers are taken back, runners are told to stop.
func TestACancelledFlowLeavesNothingOpen(t *testing.T) {
	b := newJobBench(t)
	r := b.runner("r")
	f := b.flow(`{"start": true, "jobs": [{P, "ref": 1}, {P, "ref": 2, "retries": 3}, {P, "ref": 3, "dependends": [1]},
		{P, "ref": 4, "prerequisites": ["ok"]}]}`)
	id := jobsOf(f)
	a := r.claim(1, "30s")
	if len(a.Jobs) != 1 {
		t.Fatalf("%+v", a)
	}
	held := a.Jobs[0]
	at := fmt.Sprint(b.url, "/flows/", f["id"])
	if v := want(t, 202, "POST", at+"/cancel", `{"reason": "not wanted"}`); v["changed"] != true {
		t.Errorf("%v", v)
	}
	if v := want(t, 200, "POST", at+"/cancel", ""); v["changed"] != false {
		t.Errorf("%v", v)
	}
	if v := want(t, 200, "GET", at, ""); v["status"] != "error" || v["error"].(map[string]any)["code"] != "cancelled" {
		t.Errorf("%v", v)
	}
	if a := r.claim(4, "0s"); len(a.Jobs) != 0 {
		t.Errorf("%+v", a)
	}
	b.ask(200, "POST", "/tries/"+held.Try+"/fail", runner.FailRequest{Code: "stopped"}, held.Fence, nil)
	for ref, j := range id {
		if v := b.ended(j); v["status"] != "error" {
			t.Errorf("%d: %v", ref, v)
		}
		b.closed(ref, j)
	}
	for _, state := range []string{"WAITING", "DISPATCHING", "REVISION", "RETRY"} {
		v := want(t, 200, "GET", b.url+"/transactions?state="+state, "")
		if open := v["items"].([]any); len(open) != 0 {
			t.Errorf("%v", open)
		}
	}
}
