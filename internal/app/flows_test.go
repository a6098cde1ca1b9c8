package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/runner"
)

// flow posts a flow whose jobs are python.
func (b *jobBench) flow(body string) map[string]any {
	b.t.Helper()
	const python = `"script": "print(1)", "script_type": "python",`
	return want(b.t, 201, "POST", b.url+"/flows", strings.ReplaceAll(body, "P,", python))
}

// flowEnds waits for the end of a flow.
func (b *jobBench) flowEnds(f map[string]any) map[string]any {
	b.t.Helper()
	return b.endOf(fmt.Sprint("/flows/", f["id"]))
}

// jobsOf is the jobs of a flow by their refs.
func jobsOf(f map[string]any) map[int]map[string]any {
	jobs := map[int]map[string]any{}
	for _, j := range f["jobs"].([]any) {
		jobs[int(j.(map[string]any)["ref"].(float64))] = j.(map[string]any)
	}
	return jobs
}

// takes claims until it has so many jobs, and returns them by their ids.
func (r *runnerOf) takes(n int) map[string]runner.Job {
	r.t.Helper()
	got := map[string]runner.Job{}
	for range 6 {
		for _, j := range r.claim(8, "10s").Jobs {
			got[j.Job] = j
		}
		if len(got) >= n {
			break
		}
	}
	if len(got) != n {
		r.t.Fatalf("%d jobs, want %d: %v", len(got), n, got)
	}
	return got
}

// does finishes jobs, each with its result.
func (r *runnerOf) does(jobs map[string]runner.Job, results map[string]string) {
	r.t.Helper()
	for _, j := range jobs {
		r.finish(200, j, results)
		r.drop(j)
	}
}

func (b *jobBench) events(path string) string {
	b.t.Helper()
	var events []string
	for _, s := range want(b.t, 200, "GET", b.url+path+"/history", "")["items"].([]any) {
		events = append(events, s.(map[string]any)["event"].(string))
	}
	return strings.Join(events, " ")
}

// A diamond: the first job alone, then two at once, then the last one, which reads what they returned.
func TestADiamondGoesLevelByLevel(t *testing.T) {
	b := newJobBench(t)
	r := b.runner("r")
	f := b.flow(`{"ref": 1, "env_vars": {"A": "f", "B": "f"}, "start": true, "jobs": [
		{P, "ref": 4, "dependends": [2, 3]}, {P, "ref": 2, "dependends": [1]},
		{P, "ref": 3, "dependends": [1]}, {P, "ref": 1, "env_vars": {"B": "j"}}]}`)
	if f["status"] != "dispatched" {
		t.Errorf("%v", f)
	}
	id := jobsOf(f)
	if id[2]["status"] != "waiting_for_prerequisites" || id[1]["status"] != "dispatched" {
		t.Errorf("%v", id)
	}
	first := r.takes(1)
	j := first[id[1]["id"].(string)]
	if j.Env["A"] != "f" || j.Env["B"] != "j" || j.Env["POSTERN_FLOW"] != f["id"] || j.Flow != f["id"] {
		t.Errorf("%+v", j)
	}
	if v := want(t, 200, "GET", fmt.Sprint(b.url, "/flows/", f["id"]), ""); v["status"] != "started" {
		t.Errorf("%v", v)
	}
	r.does(first, map[string]string{"k": "1"})
	second := r.takes(2)
	two, three := second[id[2]["id"].(string)], second[id[3]["id"].(string)]
	if string(two.Inputs) != `{"1":{"k":"1"}}` {
		t.Errorf("the inputs of the second job: %s", two.Inputs)
	}
	r.finish(200, two, map[string]string{"k": "2"})
	r.drop(two)
	if a := r.claim(4, "1s"); len(a.Jobs) != 0 {
		t.Errorf("the last job began before all that it needs had ended: %+v", a)
	}
	r.finish(200, three, map[string]string{"k": "3"})
	r.drop(three)
	r.does(r.takes(1), map[string]string{"k": "4"})
	v := b.flowEnds(f)
	if v["status"] != "finished" || fmt.Sprint(v["result"]) != "map[1.k:1 2.k:2 3.k:3 4.k:4]" ||
		v["finished_count"] != 4.0 {
		t.Errorf("%v", v)
	}
	if got := b.events(fmt.Sprint("/flows/", f["id"])); got != "Created Released JobStarted JobFinished" {
		t.Errorf("history: %s", got)
	}
	if got := b.events(fmt.Sprint("/jobs/", id[4]["id"])); got != "Created Released PrerequisitesMet Started Finished" {
		t.Errorf("history: %s", got)
	}
	for _, kind := range []string{"text/vnd.mermaid", "image/svg+xml"} {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", fmt.Sprint(b.url, "/flows/", f["id"], "/dag"), nil)
		req.Header.Set("Accept", kind)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text := body(t, res)
		edges := strings.Count(text, "-->") + strings.Count(text, "data-from=")
		if res.Header.Get("Content-Type") != kind || edges != 4 || strings.Count(text, "finished") < 4 {
			t.Errorf("%s: %s", kind, text)
		}
	}
	if v := want(t, 200, "GET", fmt.Sprint(b.url, "/flows/", f["id"], "/dag"), ""); len(v["edges"].([]any)) != 4 ||
		len(v["nodes"].([]any)) != 4 {
		t.Errorf("%v", v)
	}
}

// One job that fails ends its flow: what needs it has failed since it did, what does not is aborted, what runs is
// stopped, and what that returns is kept on its job. A redrive does the rest, without what had finished.
func TestOneFailureEndsAFlow(t *testing.T) {
	b := newJobBench(t)
	r := b.runner("r")
	f := b.flow(`{"start": true, "jobs": [{P, "ref": 1}, {P, "ref": 2}, {P, "ref": 3, "dependends": [1]},
		{P, "ref": 4, "dependends": [3]}, {P, "ref": 5, "dependends": [2]}, {P, "ref": 6},
		{P, "ref": 7, "dependends": [6]}]}`)
	id := jobsOf(f)
	got := r.takes(3)
	six := got[id[6]["id"].(string)]
	r.finish(200, six, map[string]string{"k": "6"})
	r.drop(six)
	seven := r.takes(1)[id[7]["id"].(string)]
	one, two := got[id[1]["id"].(string)], got[id[2]["id"].(string)]
	b.ask(200, "POST", "/tries/"+one.Try+"/fail", runner.FailRequest{Code: "exit", Error: "boom"}, one.Fence, nil)
	r.drop(one)
	v := b.flowEnds(f)
	e := v["error"].(map[string]any)
	if v["status"] != "error" || e["code"] != "exit" || e["cause"] != one.Job {
		t.Errorf("%v", v)
	}
	for ref, want := range map[int]string{1: "error exit", 3: "error dependency_failed", 4: "error dependency_failed",
		5: "error flow_aborted", 6: "finished", 2: "started", 7: "started"} {
		j := jobsOf(v)[ref]
		said := fmt.Sprint(j["status"])
		if e, ok := j["error"].(map[string]any); ok {
			said += " " + fmt.Sprint(e["code"])
			if cause := fmt.Sprint(e["cause"]); ref > 1 && cause != one.Job {
				t.Errorf("job %d has the cause %s, want %s", ref, cause, one.Job)
			}
		}
		if said != want {
			t.Errorf("job %d: %s, want %s", ref, said, want)
		}
	}
	var renewed runner.RenewAnswer
	b.ask(200, "POST", r.path("renew"), runner.RenewRequest{Epoch: r.epoch, Holds: r.holds}, 0, &renewed)
	if len(renewed.Stop) != 2 {
		t.Errorf("%+v", renewed)
	}
	b.ask(200, "POST", "/tries/"+two.Try+"/fail", runner.FailRequest{Code: "stopped", Error: "stopped",
		Partial: map[string]string{"half": "1"}}, two.Fence, nil)
	r.finish(200, seven, map[string]string{"k": "7"})
	r.drop(two)
	r.drop(seven)
	if v := b.ended(id[2]); v["status"] != "error" || fmt.Sprint(v["result"]) != "map[half:1]" {
		t.Errorf("%v", v)
	}
	if v := b.ended(id[7]); v["status"] != "finished" || fmt.Sprint(v["result"]) != "map[k:7]" {
		t.Errorf("%v", v)
	}
	for ref, j := range id {
		b.closed(ref, j)
	}
	want(t, 409, "POST", fmt.Sprint(b.url, "/flows/", f["id"], "/jobs"),
		`{"jobs": [{"ref": 9, "script": "1", "script_type": "python"}]}`)
	again := want(t, 201, "POST", fmt.Sprint(b.url, "/flows/", f["id"], "/redrive"), `{"jobs": [
		{"ref": 1, "script": "print(2)", "script_type": "python"}]}`)
	if again["redrive_of"] != f["id"] || jobsOf(again)[6]["status"] != "finished" ||
		jobsOf(again)[7]["status"] != "finished" {
		t.Errorf("%v", again)
	}
	for level := range [][]int{{1, 2}, {3, 5}, {4}} {
		r.does(r.takes([]int{2, 2, 1}[level]), map[string]string{"k": "x"})
	}
	if v := b.flowEnds(again); v["status"] != "finished" ||
		fmt.Sprint(v["result"]) != "map[1.k:x 2.k:x 3.k:x 4.k:x 5.k:x 6.k:6 7.k:7]" {
		t.Errorf("%v", v)
	}
}

// closed waits until the transaction of a job has ended.
func (b *jobBench) closed(ref int, job map[string]any) {
	b.t.Helper()
	v := want(b.t, 200, "GET", fmt.Sprint(b.url, "/jobs/", job["id"]), "")
	if v["transaction"] == nil {
		return
	}
	tx := want(b.t, 200, "GET", fmt.Sprint(b.url, "/transactions/", v["transaction"], "?wait=30s"), "")
	if !slices.Contains([]any{"DONE", "FAILED", "CANCELLED", "UNRESOLVED"}, tx["state"]) {
		b.t.Errorf("the transaction of job %d is %v: %v", ref, tx["state"], tx)
	}
}

// A job waits for a name until somebody says that it is met.
func TestAJobWaitsForWhatSomebodyMeets(t *testing.T) {
	b := newJobBench(t)
	r := b.runner("r")
	f := b.flow(`{"jobs": [{P, "ref": 1, "prerequisites": ["ok by finance", "second"]},
		{P, "ref": 2, "dependends": [1]}]}`)
	if v := want(t, 200, "POST", fmt.Sprint(b.url, "/flows/", f["id"], "/start"), `{}`); v["changed"] != true {
		t.Errorf("%v", v)
	}
	if v := want(t, 200, "POST", fmt.Sprint(b.url, "/flows/", f["id"], "/start"), `{}`); v["changed"] != false {
		t.Errorf("%v", v)
	}
	v := want(t, 200, "GET", fmt.Sprint(b.url, "/flows/", f["id"]), "")
	if v["status"] != "waiting_for_prerequisites" {
		t.Errorf("%v", v)
	}
	if a := r.claim(4, "1s"); len(a.Jobs) != 0 {
		t.Errorf("%+v", a)
	}
	one := fmt.Sprint(b.url, "/jobs/", jobsOf(f)[1]["id"])
	want(t, 422, "POST", one+"/prerequisites", `{"met": ["ok by finance", "not asked for"]}`)
	for _, changed := range []bool{true, false} {
		if v := want(t, 200, "POST", one+"/prerequisites", `{"met": ["ok by finance"]}`); v["changed"] != changed {
			t.Errorf("%v", v)
		}
	}
	if a := r.claim(4, "1s"); len(a.Jobs) != 0 {
		t.Errorf("%+v", a)
	}
	want(t, 200, "POST", one+"/prerequisites", `{"met": ["second"], "reason": "seen"}`)
	r.does(r.takes(1), nil)
	r.does(r.takes(1), nil)
	if v := b.flowEnds(f); v["status"] != "finished" {
		t.Errorf("%v", v)
	}
}

// A prerequisite that is not met in time ends its job, and the flow.
func TestAPrerequisiteHasADeadline(t *testing.T) {
	b := &jobBench{t, clocked(t, map[string]string{"POSTERN_DEBUG_CLOCK": "true"})}
	f := b.flow(`{"start": true, "jobs": [{P, "ref": 1, "prerequisites": ["ok"], "prerequisite_timeout": 3600},
		{P, "ref": 2, "dependends": [1]}]}`)
	want(t, 200, "POST", b.url+"/debug/clock", `{"advance": "2h"}`)
	v := b.flowEnds(f)
	if v["status"] != "error" || v["error"].(map[string]any)["code"] != "prerequisite_timeout" {
		t.Errorf("%v", v)
	}
	id := jobsOf(v)
	if id[1]["error"].(map[string]any)["code"] != "prerequisite_timeout" ||
		id[2]["error"].(map[string]any)["code"] != "dependency_failed" {
		t.Errorf("%v", id)
	}
	v = want(t, 409, "POST", fmt.Sprint(b.url, "/jobs/", id[1]["id"], "/prerequisites"), `{"met": ["ok"]}`)
	if v["code"] != "wrong_state" {
		t.Errorf("%v", v)
	}
	for ref, j := range id {
		b.closed(ref, j)
	}
}

// What cannot be a flow is refused with a code and the place of what is wrong, and nothing is stored.
func TestWhatCannotBeAFlowIsRefused(t *testing.T) {
	b := newJobBench(t)
	p := `"script": "1", "script_type": "python"`
	many := make([]string, 1001)
	wide := make([]string, 65)
	for i := range many {
		many[i] = fmt.Sprintf(`{%s, "ref": %d}`, p, i+1)
		if i < 65 {
			wide[i] = fmt.Sprint(i + 1)
		}
	}
	p1 := `{` + p + `, "ref": 1`
	wideOne := `{` + p + `, "ref": 2000, "dependends": [` + strings.Join(wide, ",") + `]}`
	large := func(n int) string { return strings.Repeat("x", n<<10) }
	for _, c := range []struct{ code, pointer, jobs string }{
		{"dependency_cycle", "/jobs/0/dependends/0", `{` + p + `, "ref": 1, "dependends": [1]}`},
		{"dependency_cycle", "/jobs/0/dependends", p1 + `, "dependends": [2]}, {` + p +
			`, "ref": 2, "dependends": [1]}`},
		{"unknown_dependency", "/jobs/0/dependends/0", `{` + p + `, "ref": 1, "dependends": [99]}`},
		{"invalid", "/jobs/65/dependends", strings.Join(many[:65], ",") + `, ` + wideOne},
		{"invalid", "/jobs", strings.Join(many, ",")},
		{"invalid", "/jobs/1/ref", `{` + p + `, "ref": 1}, {` + p + `, "ref": 1}`},
		{"invalid", "/jobs/0/ref", `{` + p + `, "ref": -1}`},
		{"invalid", "/jobs/0/ref", `{` + p + `, "ref": 4294967296}`},
		{"invalid", "/jobs/0/script", `{"ref": 1, "script": "", "script_type": "python"}`},
		{"invalid", "/jobs/0/script", `{"ref": 1, "script": "` + large(257) + `", "script_type": "python"}`},
		{"invalid", "/jobs/0/script_type", `{"ref": 1, "script": "1", "script_type": "cobol"}`},
		{"invalid", "/jobs/0/script_type", `{"ref": 1, "script": "1", "script_type": "need"}`},
		{"invalid", "/jobs/0/timeout", `{` + p + `, "ref": 1, "timeout": 0}`},
		{"invalid", "/jobs/0/timeout", `{` + p + `, "ref": 1, "timeout": -1}`},
		{"invalid", "/jobs/0/retries", `{` + p + `, "ref": 1, "retries": 256}`},
		{"invalid", "/jobs/0/env_vars", `{` + p + `, "ref": 1, "env_vars": {"A=B": "1"}}`},
		{"invalid", "/jobs/0/env_vars/LD_PRELOAD", `{` + p + `, "ref": 1, "env_vars": {"LD_PRELOAD": "1"}}`},
		{"invalid", "/jobs/0/env_vars/POSTERN_X", `{` + p + `, "ref": 1, "env_vars": {"POSTERN_X": "1"}}`},
		{"invalid", "/jobs/0/env_vars", `{` + p + `, "ref": 1, "env_vars": {"A": "` + large(129) + `"}}`},
	} {
		for _, path := range []string{"/flows", "/flows:validate"} {
			status, text := b.call("POST", path, jsonOf(`{"start": true, "jobs": [`+c.jobs+`]}`), 0)
			if status != 422 || !strings.Contains(text, `"code":"`+c.code+`"`) ||
				!strings.Contains(text, `"pointer":"`+c.pointer+`"`) {
				t.Errorf("%s %.120s: %d %.300s, want %s at %s", path, c.jobs, status, text, c.code, c.pointer)
			}
		}
	}
	if v := want(t, 200, "GET", b.url+"/flows", ""); len(v["items"].([]any)) != 0 {
		t.Errorf("%v", v)
	}
	if v := want(t, 200, "GET", b.url+"/jobs", ""); len(v["items"].([]any)) != 0 {
		t.Errorf("%v", v)
	}
	body := `{"ref": 7, "jobs": [{` + p + `, "ref": 1}]}`
	f := want(t, 201, "POST", b.url+"/flows", body)
	if v := want(t, 200, "POST", b.url+"/flows", body); v["id"] != f["id"] {
		t.Errorf("%v", v)
	}
	v := want(t, 409, "POST", b.url+"/flows", strings.Replace(body, `"1"`, `"2"`, 1))
	if v["code"] != "idempotency_conflict" || fmt.Sprint(v["differs"]) != "[jobs]" {
		t.Errorf("%v", v)
	}
}

// The environment of a flow may change until its jobs are posted.
func TestTheEnvironmentIsFrozenAtTheStart(t *testing.T) {
	b := newJobBench(t)
	r := b.runner("r")
	f := b.flow(`{"env_vars": {"A": "1"}, "jobs": [{P, "ref": 1}]}`)
	patch := func(status int, etag, value string) {
		t.Helper()
		req, _ := http.NewRequestWithContext(t.Context(), "PATCH", fmt.Sprint(b.url, "/flows/", f["id"]),
			strings.NewReader(`{"env_vars": {"A": "`+value+`"}}`))
		req.Header.Set("Content-Type", "application/json")
		if etag != "" {
			req.Header.Set("If-Match", etag)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.StatusCode != status {
			t.Errorf("%d, want %d: %s", res.StatusCode, status, body(t, res))
		}
	}
	patch(428, "", "2")
	patch(412, `"99"`, "2")
	patch(200, fmt.Sprintf(`"%.0f"`, f["version"]), "2")
	want(t, 200, "POST", fmt.Sprint(b.url, "/flows/", f["id"], "/start"), "")
	patch(200, "*", "3")
	for _, j := range r.takes(1) {
		if j.Env["A"] != "2" {
			t.Errorf("%+v", j)
		}
	}
}

func body(t *testing.T, res *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// jsonOf is a body that is written as it stands.
func jsonOf(text string) json.RawMessage { return json.RawMessage(text) }

// why is the kinds of the blockers of a job or a flow.
func (b *jobBench) why(path string) (kinds []string, answer map[string]any) {
	b.t.Helper()
	answer = want(b.t, 200, "GET", b.url+path+"/why", "")
	for _, x := range answer["blockers"].([]any) {
		kinds = append(kinds, x.(map[string]any)["kind"].(string))
	}
	return kinds, answer
}

// The question why leads from the flow over its jobs to the runner.
func TestWhyLeadsFromAFlowToItsRunner(t *testing.T) {
	b := newJobBench(t)
	f := b.flow(`{"jobs": [{P, "ref": 1}, {P, "ref": 2, "dependends": [1], "prerequisites": ["ok"]}]}`)
	flow := fmt.Sprint("/flows/", f["id"])
	two := fmt.Sprint("/jobs/", jobsOf(f)[2]["id"])
	says := func(path, kinds string) map[string]any {
		t.Helper()
		var got []string
		var v map[string]any
		for range 100 { // offers come a moment later
			if got, v = b.why(path); strings.Join(got, " ") == kinds {
				return v
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Errorf("%s: %v, want %s: %v", path, got, kinds, v)
		return v
	}
	says(flow, "flow_not_started")
	want(t, 200, "POST", b.url+flow+"/start", "")
	v := says(flow, "needs_job no_runner")
	if !strings.Contains(fmt.Sprint(v["summary"]), "no runner takes python") {
		t.Errorf("%v", v["summary"])
	}
	says(two, "need_open needs_job no_runner")
	r := b.runner("r")
	want(t, 200, "POST", b.url+"/runners/r/pause", "")
	says(flow, "needs_job runner_paused")
	want(t, 200, "POST", b.url+"/runners/r/resume", "")
	jobs := r.takes(1)
	for _, j := range jobs {
		b.ask(204, "POST", "/tries/"+j.Try+"/log", runner.LogRequest{Lines: []runner.Line{{N: 1, Stream: "stdout",
			Text: "half way"}}}, j.Fence, nil)
	}
	if v := says(two, "need_open needs_job in_runner"); !strings.Contains(fmt.Sprint(v), "half way") {
		t.Errorf("%v", v)
	}
	r.does(jobs, nil)
	says(flow, "needs_job need_open")
	want(t, 200, "POST", b.url+flow+"/cancel", "")
	says(flow, "terminal")
}

// An application posts a graph of scripts in its own SQL transaction: all of it, or nothing; and reads its results.
func TestAGraphOfScriptsIsCommittedWithTheRowsOfAnApplication(t *testing.T) {
	database := pgtest.New(t)
	b := &jobBench{t, clocked(t, map[string]string{"DATABASE_URL": database.URL})}
	r := b.runner("r")
	const post = `SELECT postern.submit_many('[{"type": "job.python", "uid": "one", "data": {"script": "1"}},
		{"type": "job.python", "uid": "two", "depends_on": ["one"], "data": {"script": "2"}}]')`
	c, err := pgx.Connect(t.Context(), database.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	for _, end := range []string{"ROLLBACK", "COMMIT"} {
		for _, sql := range []string{"BEGIN", "CREATE TABLE public.orders (id int)", post, end} {
			if _, err := c.Exec(t.Context(), sql); err != nil {
				t.Fatal(sql, err)
			}
		}
		if end == "ROLLBACK" {
			if v := want(t, 200, "GET", b.url+"/jobs", ""); len(v["items"].([]any)) != 0 {
				t.Errorf("%v", v)
			}
		}
	}
	r.does(r.takes(1), map[string]string{"k": "1"})
	for _, j := range r.takes(1) {
		if string(j.Inputs) != `{"one":{"k":"1"}}` || j.Script != "2" {
			t.Errorf("%+v", j)
		}
		r.finish(200, j, map[string]string{"k": "2"})
	}
	const read = `SELECT coalesce((SELECT j.result->>'k' FROM postern.jobs j WHERE j.uid = 'two'), '')`
	for range 200 {
		var result string
		if err := c.QueryRow(t.Context(), read).Scan(&result); err != nil {
			t.Fatal(err)
		}
		if result == "2" {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Error("postern.jobs has no result")
}
