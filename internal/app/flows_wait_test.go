package app_test

import (
	"fmt"
	"testing"
	"time"
)

// whyOf is the blocker of a kind that /why names, or nil.
func (b *jobBench) whyOf(path, kind string) map[string]any {
	b.t.Helper()
	blockers, _ := want(b.t, 200, "GET", b.url+path+"/why", "")["blockers"].([]any)
	for _, x := range blockers {
		if x := x.(map[string]any); x["kind"] == kind {
			return x
		}
	}
	return nil
}

// A script type has no runner for a day and more: none of its jobs fails, /why says that there is no runner, and since
// when, and the first runner that comes executes them.
func TestJobsWaitForARunnerForADay(t *testing.T) {
	b := &jobBench{t, clocked(t, map[string]string{"POSTERN_DEBUG_CLOCK": "true"})}
	f := b.flow(`{"start": true, "jobs": [{P, "ref": 1}, {P, "ref": 2, "dependends": [1]}]}`)
	alone := want(b.t, 201, "POST", b.url+"/jobs", `{"script": "print(1)", "script_type": "python"}`)
	paths := []string{fmt.Sprint("/jobs/", alone["id"]), fmt.Sprint("/jobs/", jobsOf(f)[1]["id"])}
	since := map[string]any{}
	for _, path := range paths {
		var why map[string]any
		for end := time.Now().Add(time.Minute); why == nil && time.Now().Before(end); {
			time.Sleep(20 * time.Millisecond)
			why = b.whyOf(path, "no_runner")
		}
		if since[path] = why["since"]; since[path] == nil {
			t.Errorf("%s: %v, want since when", path, why)
		}
	}
	for range 5 { // beyond what is asked again in a day
		want(t, 200, "POST", b.url+"/debug/clock", `{"advance": "7h"}`)
		time.Sleep(300 * time.Millisecond)
	}
	for _, path := range paths {
		j := want(t, 200, "GET", b.url+path, "")
		why := b.whyOf(path, "no_runner")
		if j["status"] != "dispatched" || j["error"] != nil || why == nil || why["since"] != since[path] {
			t.Errorf("%s is %v, error %v; why %v, want no_runner since %v", path, j["status"], j["error"], why,
				since[path])
		}
		tx := want(t, 200, "GET", fmt.Sprint(b.url, "/transactions/", j["transaction"]), "")
		if tx["state"] != "REVISION" || tx["retries"] != 0.0 {
			t.Errorf("its transaction is %v with %v retries", tx["state"], tx["retries"])
		}
	}
	if got := b.whyOf(fmt.Sprint("/flows/", f["id"]), "no_runner"); got == nil {
		t.Error("/why of the flow does not name the runner that it lacks")
	}
	r := b.runner("r")
	r.does(r.takes(2), nil)
	r.does(r.takes(1), nil)
	if v := b.flowEnds(f); v["status"] != "finished" {
		t.Errorf("%v", v)
	}
}
