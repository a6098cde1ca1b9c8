package app_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/runner"
)

// jobBench is an installation with a context in which jobs are posted, and runners by plain HTTP.
type jobBench struct {
	t   *testing.T
	url string
}

func newJobBench(t *testing.T) *jobBench {
	t.Helper()
	return &jobBench{t, clocked(t, nil)}
}

// runnerOf is a runner by plain HTTP: the test says what it does.
type runnerOf struct {
	*jobBench
	name  string
	epoch int64
	holds []runner.Hold
}

// call sends a request with a body and a fence, 0 for none, and returns the status and the answer.
func (b *jobBench) call(method, path string, body any, fence int64) (int, string) {
	b.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		b.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(string(text)))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if fence != 0 {
		req.Header.Set(runner.HeaderFence, fmt.Sprint(fence))
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return res.StatusCode, string(out)
}

// ask is call that wants a status, and reads the answer into out.
func (b *jobBench) ask(status int, method, path string, body any, fence int64, out any) string {
	b.t.Helper()
	got, text := b.call(method, path, body, fence)
	if got != status {
		b.t.Fatalf("%s %s: %d, want %d: %s", method, path, got, status, text)
	}
	if out != nil {
		if err := json.Unmarshal([]byte(text), out); err != nil {
			b.t.Fatalf("%s %s: %v: %s", method, path, err, text)
		}
	}
	return text
}

func (b *jobBench) runner(name string) *runnerOf {
	b.t.Helper()
	r := &runnerOf{jobBench: b, name: name}
	var a runner.RegisterAnswer
	b.ask(200, "POST", "/runners/"+name+"/register", runner.RegisterRequest{
		Instance:    name + "-1",
		ScriptTypes: []string{"python"},
		Slots:       4,
		Isolation:   "off",
		Version:     "test",
	}, 0, &a)
	r.epoch = a.Epoch
	return r
}

func (r *runnerOf) path(verb string) string { return "/runners/" + r.name + "/" + verb }

// claim takes jobs, and waits for them if there are none.
func (r *runnerOf) claim(max int, wait string) runner.ClaimAnswer {
	r.t.Helper()
	if r.holds == nil {
		r.holds = []runner.Hold{}
	}
	var a runner.ClaimAnswer
	status, text := r.call("POST", r.path("claim")+"?wait="+wait, runner.ClaimRequest{Epoch: r.epoch, Max: max,
		Holds: r.holds}, 0)
	switch status {
	case 204:
	case 200:
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			r.t.Fatal(err)
		}
	default:
		r.t.Fatalf("claim: %d %s", status, text)
	}
	for _, j := range a.Jobs {
		r.holds = append(r.holds, runner.Hold{Try: j.Try, Fence: j.Fence})
	}
	return a
}

// one claims the one job that there is.
func (r *runnerOf) one() runner.Job {
	r.t.Helper()
	a := r.claim(4, "30s")
	if len(a.Jobs) != 1 {
		r.t.Fatalf("%d jobs, want 1: %+v", len(a.Jobs), a)
	}
	return a.Jobs[0]
}

// drop forgets a try that has ended.
func (r *runnerOf) drop(j runner.Job) {
	r.holds = slices.DeleteFunc(r.holds, func(h runner.Hold) bool { return h.Try == j.Try })
}

func (r *runnerOf) finish(status int, j runner.Job, result map[string]string) string {
	r.t.Helper()
	return r.ask(status, "POST", "/tries/"+j.Try+"/finish", runner.FinishRequest{Result: result, Isolation: "off"},
		j.Fence, nil)
}

// post posts a job and returns it.
func (b *jobBench) post(body string) map[string]any {
	b.t.Helper()
	return want(b.t, 201, "POST", b.url+"/jobs", body)
}

// ended waits for the end of a job.
func (b *jobBench) ended(job map[string]any) map[string]any {
	b.t.Helper()
	return b.endOf(fmt.Sprint("/jobs/", job["id"]))
}

// endOf waits for the end of the job or the flow of a path.
func (b *jobBench) endOf(path string) (v map[string]any) {
	b.t.Helper()
	for range 5 {
		if v = want(b.t, 200, "GET", b.url+path+"?wait=30s", ""); v["ended_at"] != nil {
			return v
		}
	}
	b.t.Fatalf("%s has not ended: %v", path, v)
	return nil
}

func TestAJobIsClaimedFinishedAndItsTransactionIsDone(t *testing.T) {
	b := newJobBench(t)
	r := b.runner("r")
	if a := r.claim(4, "0s"); len(a.Jobs) != 0 {
		t.Fatalf("%+v", a)
	}
	job := b.post(`{"ref": 7, "script": "print(1)", "script_type": "python", "timeout": 60, "env_vars": {"A": "j"}}`)
	j := r.one()
	if j.Job != job["id"] || j.Script != "print(1)" || j.Attempt != 1 || j.Env["A"] != "j" ||
		j.Env["POSTERN_ATTEMPT"] != "1" ||
		j.Env["POSTERN_JOB"] != j.Job || j.Env["POSTERN_TOKEN"] != j.Token || j.Timeout != 60 ||
		j.Context != "default" {
		t.Errorf("%+v", j)
	}
	if v := want(t, 200, "GET", b.url+"/jobs/"+j.Job, ""); v["status"] != "started" || v["runner"] != "r" {
		t.Errorf("%v", v)
	}
	log := runner.LogRequest{Lines: []runner.Line{{N: 1, Stream: "stdout", Text: "one"}, {N: 2, Stream: "stderr",
		Text: "two"}}}
	b.ask(204, "POST", "/tries/"+j.Try+"/log", log, j.Fence, nil)
	b.ask(204, "POST", "/tries/"+j.Try+"/log", log, j.Fence, nil)
	b.ask(428, "POST", "/tries/"+j.Try+"/finish", runner.FinishRequest{Result: map[string]string{}}, 0, nil)
	b.ask(409, "POST", "/tries/"+j.Try+"/finish", runner.FinishRequest{Result: map[string]string{}}, j.Fence-1, nil)
	b.ask(422, "POST", "/tries/"+j.Try+"/finish", map[string]any{"result": map[string]any{"n": 1}}, j.Fence, nil)
	if text := r.finish(200, j, map[string]string{"n": "3"}); !strings.Contains(text, "true") {
		t.Errorf("%s", text)
	}
	if text := r.finish(200, j, map[string]string{"n": "3"}); !strings.Contains(text, "false") {
		t.Errorf("%s", text)
	}
	if text := r.finish(409, j, map[string]string{"n": "4"}); !strings.Contains(text, "stale_fence") {
		t.Errorf("%s", text)
	}
	v := b.ended(job)
	if v["status"] != "finished" || fmt.Sprint(v["result"]) != "map[n:3]" || v["error"] != nil {
		t.Errorf("%v", v)
	}
	tx := want(t, 200, "GET", fmt.Sprint(b.url, "/transactions/", v["transaction"], "?wait=30s"), "")
	if tx["state"] != "DONE" || tx["type"] != "job.python" || !strings.Contains(fmt.Sprint(tx["result"]), "map[n:3]") {
		t.Errorf("%v", tx)
	}
	lines := want(t, 200, "GET", b.url+"/jobs/"+j.Job+"/logs", "")["items"].([]any)
	if len(lines) != 2 || lines[0].(map[string]any)["text"] != "one" ||
		lines[1].(map[string]any)["stream"] != "stderr" {
		t.Errorf("%v", lines)
	}
	var events []string
	for _, s := range want(t, 200, "GET", b.url+"/jobs/"+j.Job+"/history", "")["items"].([]any) {
		events = append(events, s.(map[string]any)["event"].(string))
	}
	if got := strings.Join(events, " "); got != "Created Released Started Finished" {
		t.Errorf("history: %s", got)
	}
}

// The same ref with the same content is the same job; with other content it is refused, and what differs is named.
func TestARefNamesOneJobOfItsCaller(t *testing.T) {
	b := newJobBench(t)
	const body = `{"ref": 7, "script": "print(1)", "script_type": "python"}`
	job := b.post(body)
	if again := want(t, 200, "POST", b.url+"/jobs", body); again["id"] != job["id"] {
		t.Errorf("%v", again)
	}
	p := want(t, 409, "POST", b.url+"/jobs", `{"ref": 7, "script": "print(2)", "script_type": "python"}`)
	if p["code"] != "idempotency_conflict" || fmt.Sprint(p["differs"]) != "[script]" {
		t.Errorf("%v", p)
	}
	if p := want(t, 422, "POST", b.url+"/jobs", `{"script": "1",
		"script_type": "cobol"}`); !strings.Contains(fmt.Sprint(p["detail"]), "PUT /dispatchers/job.cobol") {
		t.Errorf("%v", p)
	}
	want(t, 201, "PUT", b.url+"/dispatchers/job.cobol", `{"worker_url": "run:"}`)
	b.post(`{"script": "1", "script_type": "cobol"}`)
	want(t, 422, "PUT", b.url+"/dispatchers/T", `{"worker_url": "run:"}`)
	want(t, 422, "PUT", b.url+"/dispatchers/job.x", `{"worker_url": "noop:"}`)
}

// A runner that is silent loses what it holds to another, under the same token, and no retry is consumed; what it says
// later changes nothing. The third time the job has failed.
func TestAJobOutlivesItsRunnersTwice(t *testing.T) {
	b := newJobBench(t)
	for _, name := range []string{"a", "b", "c"} {
		want(t, 201, "PUT", b.url+"/runners/"+name, `{"script_types": ["python"], "slots": 4, "ttl": "3s"}`)
	}
	job := b.post(`{"script": "print(1)", "script_type": "python", "retries": 2}`)
	a := b.runner("a")
	first := a.one()
	second := b.runner("b").one()
	if second.Token != first.Token || second.Attempt != 1 || second.Fence <= first.Fence || second.Try != first.Try {
		t.Errorf("first %+v, second %+v", first, second)
	}
	if text := a.finish(409, first, map[string]string{"by": "a"}); !strings.Contains(text, "stale_fence") {
		t.Errorf("%s", text)
	}
	var renewed runner.RenewAnswer
	b.ask(200, "POST", a.path("renew"), runner.RenewRequest{Epoch: a.epoch, Holds: a.holds}, 0, &renewed)
	if len(renewed.Lost) != 1 || renewed.Lost[0] != a.holds[0] {
		t.Errorf("%+v", renewed)
	}
	third := b.runner("c").one()
	if third.Token != first.Token {
		t.Errorf("%+v", third)
	}
	// Its third lapse is a failure of the attempt, and the job has retries.
	d := b.runner("d")
	retried := d.one()
	if retried.Attempt != 2 || retried.Token == first.Token {
		t.Errorf("%+v", retried)
	}
	tries := want(t, 200, "GET", fmt.Sprint(b.url, "/jobs/", job["id"], "/tries"), "")["items"].([]any)
	if one := tries[0].(map[string]any); len(tries) != 2 || one["state"] != "Failed" || one["lapses"] != 3.0 ||
		one["error"].(map[string]any)["code"] != "runner_lost" {
		t.Errorf("%v", tries)
	}
	d.finish(200, retried, map[string]string{"by": "d"})
	if v := b.ended(job); v["status"] != "finished" || fmt.Sprint(v["result"]) != "map[by:d]" {
		t.Errorf("%v", v)
	}
}

// A process that registers anew begins an epoch: what the one before held is offered again, and that one is refused.
func TestAProcessThatBeginsAnewHoldsNothingOfTheOneBefore(t *testing.T) {
	b := newJobBench(t)
	b.post(`{"script": "print(1)", "script_type": "python"}`)
	old := b.runner("r")
	j := old.one()
	status, text := b.call("POST", old.path("register"), runner.RegisterRequest{Instance: "other",
		ScriptTypes: []string{"python"}, Slots: 1}, 0)
	if status != 409 || !strings.Contains(text, "runner_live") {
		t.Errorf("%d %s", status, text)
	}
	fresh := b.runner("r")
	if status, text := b.call("POST", old.path("claim"), runner.ClaimRequest{Epoch: old.epoch, Max: 1,
		Holds: []runner.Hold{}}, 0); status != 409 || !strings.Contains(text, "stale_epoch") {
		t.Errorf("%d %s", status, text)
	}
	again := fresh.one()
	if again.Try != j.Try || again.Fence <= j.Fence || again.Token != j.Token {
		t.Errorf("first %+v, then %+v", j, again)
	}
	old.finish(409, j, map[string]string{})
}

// A failure is retried as long as there are retries; a final one is not. What the script left is kept.
func TestAFailureIsRetriedUnlessItIsFinal(t *testing.T) {
	b := newJobBench(t)
	r := b.runner("r")
	job := b.post(`{"script": "print(1)", "script_type": "python", "retries": 5}`)
	fail := func(j runner.Job, final bool) {
		r.drop(j)
		code := 3
		b.ask(200, "POST", "/tries/"+j.Try+"/fail", runner.FailRequest{Code: "exit", Error: "it broke", ExitCode: &code,
			Partial: map[string]string{"half": "1"}, Final: final}, j.Fence, nil)
	}
	one := r.one()
	fail(one, false)
	two := r.one()
	if two.Attempt != 2 || two.Token == one.Token || two.Job != one.Job {
		t.Errorf("%+v", two)
	}
	fail(two, true)
	v := b.ended(job)
	e, _ := v["error"].(map[string]any)
	if v["status"] != "error" || e["code"] != "exit" || e["message"] != "it broke" || v["exit_code"] != 3.0 ||
		fmt.Sprint(v["result"]) != "map[half:1]" || v["tries"] != 2.0 {
		t.Errorf("%v", v)
	}
	tx := want(t, 200, "GET", fmt.Sprint(b.url, "/transactions/", v["transaction"]), "")
	if tx["state"] != "FAILED" || !strings.Contains(fmt.Sprint(tx["error"]), "rejected") {
		t.Errorf("%v", tx)
	}
}

// A job that waits for a runner ends at once when it is cancelled, and nothing of its transaction is left; one that is
// held is stopped by its runner.
func TestACancelledJobIsTakenBackOrStopped(t *testing.T) {
	b := newJobBench(t)
	offered := b.post(`{"script": "print(1)", "script_type": "python"}`)
	v := want(t, 200, "POST", fmt.Sprint(b.url, "/jobs/", offered["id"], "/cancel"), `{"reason": "not wanted"}`)
	if v["changed"] != true {
		t.Errorf("%v", v)
	}
	if v := b.ended(offered); v["status"] != "error" || v["error"].(map[string]any)["code"] != "cancelled" {
		t.Errorf("%v", v)
	}
	tx := want(t, 200, "GET", fmt.Sprint(b.url, "/transactions/", offered["transaction"], "?wait=60s"), "")
	if tx["state"] != "FAILED" && tx["state"] != "CANCELLED" {
		t.Errorf("%v", tx)
	}
	r := b.runner("r")
	if a := r.claim(4, "0s"); len(a.Jobs) != 0 {
		t.Errorf("%+v", a)
	}
	held := b.post(`{"script": "print(1)", "script_type": "python", "retries": 3}`)
	j := r.one()
	want(t, 202, "POST", fmt.Sprint(b.url, "/jobs/", held["id"], "/cancel"), "")
	if v := want(t, 202, "POST", fmt.Sprint(b.url, "/jobs/", held["id"], "/cancel"), ""); v["changed"] != false {
		t.Errorf("%v", v)
	}
	var renewed runner.RenewAnswer
	b.ask(200, "POST", r.path("renew"), runner.RenewRequest{Epoch: r.epoch, Holds: r.holds}, 0, &renewed)
	if len(renewed.Stop) != 1 || renewed.Stop[0].Try != j.Try {
		t.Errorf("%+v", renewed)
	}
	b.ask(200, "POST", "/tries/"+j.Try+"/fail", runner.FailRequest{Code: "stopped", Error: "stopped",
		Partial: map[string]string{"half": "1"}}, j.Fence, nil)
	if v := b.ended(held); v["status"] != "error" || fmt.Sprint(v["result"]) != "map[half:1]" || v["tries"] != 1.0 {
		t.Errorf("%v", v)
	}
	if text := func() string {
		_, s := b.call("POST", fmt.Sprint("/transactions/", tx["id"], "/redrive"), map[string]any{}, 0)
		return s
	}(); !strings.Contains(text, "wrong_state") {
		t.Errorf("%s", text)
	}
}

// A transaction of a job's type is a job, too: its script is in its data.
func TestATransactionCarriesAJob(t *testing.T) {
	b := newJobBench(t)
	r := b.runner("r")
	b.post(`{"script": "0", "script_type": "python"}`)
	first := r.one()
	r.finish(200, first, nil)
	r.drop(first)
	want(t, 422, "POST", b.url+"/transactions", `{"type": "job.python", "data": {"job": "x"}}`)
	tx := want(t, 201, "POST", b.url+"/transactions", `{"type": "job.python", "uid": "mine",
		"data": {"script": "print(1)", "env_vars": {"A": "1"}, "timeout": 5}}`)
	j := r.one()
	if j.Script != "print(1)" || j.Env["A"] != "1" || j.Timeout != 5 {
		t.Errorf("%+v", j)
	}
	r.finish(200, j, map[string]string{"n": "1"})
	if v := want(t, 200, "GET", fmt.Sprint(b.url, "/transactions/", tx["id"], "?wait=30s"), ""); v["state"] != "DONE" {
		t.Errorf("%v", v)
	}
	if v := b.ended(map[string]any{"id": j.Job}); v["transaction"] != tx["id"] ||
		fmt.Sprint(v["result"]) != "map[n:1]" {
		t.Errorf("%v", v)
	}
	v := want(t, 200, "GET", fmt.Sprint(b.url, "/transactions/", tx["id"]), "")
	if env := v["data"].(map[string]any)["env_vars"]; fmt.Sprint(env) != "map[A:***]" {
		t.Errorf("the environment is shown as %v", env)
	}
	found := want(t, 200, "GET", fmt.Sprint(b.url, "/jobs?tx=", tx["id"]), "")["items"].([]any)
	if len(found) != 1 || found[0].(map[string]any)["id"] != j.Job {
		t.Errorf("the job of a transaction: %v", found)
	}
}

// A claim that waits is handed a job that is posted meanwhile.
func TestAClaimWaitsForAJob(t *testing.T) {
	b := newJobBench(t)
	r := b.runner("r")
	got := make(chan runner.Job, 1)
	go func() { got <- r.one() }()
	time.Sleep(200 * time.Millisecond)
	job := b.post(`{"script": "print(1)", "script_type": "python"}`)
	if j := <-got; j.Job != job["id"] {
		t.Errorf("%+v", j)
	}
}
