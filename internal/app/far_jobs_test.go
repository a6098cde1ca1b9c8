package app_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/runner"
)

// farJob is a job of a flow that far executes: what it needs, in the request alone, and the rest, which is signed.
func (s *strait) farJob(ref int, needs []int, job map[string]any) map[string]any {
	s.t.Helper()
	return s.signed(s.key, func(*message.Signed) {}, ref, needs, job)
}

// signed is farJob with another key, or with a change of what is signed.
func (s *strait) signed(key ed25519.PrivateKey, change func(*message.Signed), ref int, needs []int,
	job map[string]any) map[string]any {
	s.t.Helper()
	whole := map[string]any{"script": "print(1)", "script_type": "python"}
	for k, v := range job {
		whole[k] = v
	}
	list, err := json.Marshal([]any{whole})
	if err != nil {
		s.t.Fatal(err)
	}
	v := message.Signed{V: 1, Audience: message.Audience{Installation: s.far.id, Context: "default", Peer: "near"},
		CallerKey: base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey)), CreatedAt: time.Now().UTC(),
		Type: message.Job, Jobs: list}
	change(&v)
	payload, err := json.Marshal(v)
	if err != nil {
		s.t.Fatal(err)
	}
	envelope, err := message.Seal(payload, key)
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[string]any{"ref": ref, "dependends": needs, "target": map[string]string{"peer": "far"},
		"envelope": json.RawMessage(envelope)}
	for k, v := range whole {
		out[k] = v
	}
	return out
}

// starts starts a flow of jobs at near.
func (s *strait) starts(jobs ...map[string]any) map[string]any {
	s.t.Helper()
	body, err := json.Marshal(map[string]any{"start": true, "jobs": jobs})
	if err != nil {
		s.t.Fatal(err)
	}
	return want(s.t, 201, "POST", s.near.url+"/flows", string(body))
}

// benches are near and far, each as an installation with runners.
func (s *strait) benches() (near, far *jobBench) {
	return &jobBench{s.t, s.near.url}, &jobBench{s.t, s.far.url}
}

// log appends to the output of a try.
func (r *runnerOf) log(j runner.Job, lines ...string) {
	r.t.Helper()
	var list []map[string]any
	for i, text := range lines {
		list = append(list, map[string]any{"n": i + 1, "stream": "stdout", "text": text})
	}
	r.ask(204, "POST", "/tries/"+j.Try+"/log", map[string]any{"lines": list}, j.Fence, nil)
}

// only is the one of a map.
func only[K comparable, V any](m map[K]V) (v V) {
	for _, v = range m {
	}
	return v
}

// A flow whose middle is executed by another installation: far is brought the results that its jobs need, and near
// shows their statuses, their output and their results as those of its own.
func TestAFlowGoesOverTwoInstallations(t *testing.T) {
	s := newStrait(t)
	nearBench, farBench := s.benches()
	local := map[string]any{"ref": 1, "script": "print(1)", "script_type": "python"}
	last := map[string]any{"ref": 4, "script": "print(1)", "script_type": "python", "dependends": []int{2, 3}}
	f := s.starts(local, s.farJob(2, []int{1}, map[string]any{"env_vars": map[string]string{"A": "b"}}),
		s.farJob(3, []int{1}, nil), last)
	id := jobsOf(f)
	near, far := nearBench.runner("n"), farBench.runner("f")
	near.does(near.takes(1), map[string]string{"k": "1"})
	held := far.takes(2)
	var two runner.Job
	for _, j := range held {
		if string(j.Inputs) != `{"1":{"k":"1"}}` {
			t.Errorf("its inputs are %s", j.Inputs)
		}
		if j.Env["A"] == "b" {
			two = j
		}
	}
	second := fmt.Sprint(s.near.url, "/jobs/", id[2]["id"])
	v := s.becomes(second, "started")
	if v["message"] == nil || fmt.Sprint(v["target"]) != "map[peer:far]" || v["runner"] != nil {
		t.Errorf("%v", v)
	}
	if why := fmt.Sprint(want(t, 200, "GET", second+"/why", "")); !strings.Contains(why, "awaits_result") {
		t.Errorf("%s", why)
	}
	far.log(two, "one", "two")
	for until := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		text := fmt.Sprint(want(t, 200, "GET", second+"/logs", "")["items"])
		if strings.Contains(text, "text:one") && strings.Contains(text, "text:two") {
			break
		}
		if time.Now().After(until) {
			t.Fatal("its output does not come back: ", text)
		}
	}
	if a := near.claim(4, "1s"); len(a.Jobs) != 0 {
		t.Errorf("the last job began before all that it needs had ended: %+v", a)
	}
	far.does(held, map[string]string{"k": "far"})
	j := near.one()
	if string(j.Inputs) != `{"2":{"k":"far"},"3":{"k":"far"}}` {
		t.Errorf("%s", j.Inputs)
	}
	near.finish(200, j, map[string]string{"k": "4"})
	if v := nearBench.flowEnds(f); v["status"] != "finished" ||
		fmt.Sprint(v["result"]) != "map[1.k:1 2.k:far 3.k:far 4.k:4]" {
		t.Errorf("%v", v)
	}
	events := nearBench.events(fmt.Sprint("/jobs/", id[2]["id"]))
	if events != "Created Released PrerequisitesMet Started Finished" {
		t.Errorf("history: %s", events)
	}
	tries := want(t, 200, "GET", second+"/tries", "")["items"].([]any)
	if try := tries[0].(map[string]any); len(tries) != 1 || try["state"] != "Finished" {
		t.Errorf("%v", tries)
	}
	in := want(t, 200, "GET", s.near.url+"/messages?box=in&type=result", "")["items"].([]any)
	if len(in) != 2 {
		t.Errorf("%d results in msg_in, want 2", len(in))
	}
}

// What the wire doubles, loses and holds up is one job at far, with one result at near.
func TestFarJobsAreExecutedOnceOverABadWire(t *testing.T) {
	s := newStrait(t)
	nearBench, farBench := s.benches()
	s.twice.Store(true)
	s.swallow.Store(2)
	var jobs []map[string]any
	for i := range 4 {
		jobs = append(jobs, s.farJob(i+1, nil, nil))
	}
	f := s.starts(jobs...)
	r := farBench.runner("f")
	held := r.takes(4)
	s.cut.Store(true)
	r.does(held, map[string]string{"k": "v"})
	s.cut.Store(false)
	if v := nearBench.flowEnds(f); v["status"] != "finished" {
		t.Errorf("%v", v)
	}
	if list := want(t, 200, "GET", s.far.url+"/jobs", "")["items"].([]any); len(list) != 4 {
		t.Errorf("far has %d jobs, want 4", len(list))
	}
}

// A flow that is cancelled has its jobs stopped where they are: what far has not begun it does not begin, and what runs
// there is stopped. What far says afterwards changes nothing.
func TestACancelledFlowIsStoppedAtThePeer(t *testing.T) {
	s := newStrait(t)
	nearBench, farBench := s.benches()
	far := farBench.runner("f")
	f := s.starts(s.farJob(1, nil, nil), s.farJob(2, nil, map[string]any{"topic": "nowhere"}))
	j := only(far.takes(1))
	for _, ref := range []int{1, 2} {
		delivered := fmt.Sprint(s.near.url, "/messages/", want(t, 200, "GET",
			fmt.Sprint(s.near.url, "/jobs/", jobsOf(f)[ref]["id"]), "")["message"])
		s.delivered(delivered)
	}
	s.becomes(fmt.Sprint(s.near.url, "/jobs/", jobsOf(f)[1]["id"]), "started")
	want(t, 202, "POST", fmt.Sprint(s.near.url, "/flows/", f["id"], "/cancel"), `{"reason": "enough"}`)
	nearBench.flowEnds(f)
	for _, id := range jobsOf(f) {
		if v := nearBench.endOf(fmt.Sprint("/jobs/", id["id"])); v["status"] != "error" {
			t.Errorf("%v", v)
		}
	}
	until := time.Now().Add(60 * time.Second)
	for stops := 0; stops == 0; time.Sleep(50 * time.Millisecond) {
		var a runner.RenewAnswer
		far.ask(200, "POST", far.path("renew"), runner.RenewRequest{Epoch: far.epoch, Holds: far.holds}, 0, &a)
		if stops = len(a.Stop); time.Now().After(until) {
			t.Fatal("far does not stop the script")
		}
	}
	far.finish(200, j, map[string]string{"k": "late"})
	for _, v := range want(t, 200, "GET", s.far.url+"/jobs", "")["items"].([]any) {
		farBench.endOf(fmt.Sprint("/jobs/", v.(map[string]any)["id"]))
	}
	v := want(t, 200, "GET", fmt.Sprint(s.near.url, "/jobs/", jobsOf(f)[1]["id"]), "")
	if v["status"] != "error" || !strings.Contains(fmt.Sprint(v["error"]), "stopped") {
		t.Errorf("%v", v)
	}
}

// Far loses a job, as by a restore: it is brought again, executed again, and has one result.
func TestARestoredPeerIsBroughtItsJobsAgain(t *testing.T) {
	s := newStrait(t)
	nearBench, farBench := s.benches()
	far := farBench.runner("f")
	f := s.starts(s.farJob(1, nil, nil))
	far.takes(1)
	s.becomes(fmt.Sprint(s.near.url, "/jobs/", jobsOf(f)[1]["id"]), "started")
	for _, table := range []string{"message_step", "message", "try_log", "job_try", "job"} {
		if _, err := s.far.db.Pool.Exec(t.Context(), `DELETE FROM postern.`+table); err != nil {
			t.Fatal(err)
		}
	}
	far.holds = []runner.Hold{}
	far.does(far.takes(1), map[string]string{"k": "again"})
	if v := nearBench.flowEnds(f); fmt.Sprint(v["result"]) != "map[1.k:again]" {
		t.Errorf("%v", v)
	}
}

// Near loses a flow, as by a restore, and is posted it again with what was signed: far has executed that, and does not
// again.
func TestWhatWasSignedIsExecutedOnceThoughNearForgets(t *testing.T) {
	s := newStrait(t)
	nearBench, farBench := s.benches()
	far := farBench.runner("f")
	job := s.farJob(1, nil, nil)
	first := s.starts(job)
	far.does(far.takes(1), map[string]string{"k": "once"})
	nearBench.flowEnds(first)
	for _, table := range []string{"message_step", "message", "job_try", "job", "flow"} {
		if _, err := s.near.db.Pool.Exec(t.Context(), `DELETE FROM postern.`+table); err != nil {
			t.Fatal(err)
		}
	}
	second := s.starts(job)
	if v := nearBench.flowEnds(second); fmt.Sprint(v["result"]) != "map[1.k:once]" {
		t.Errorf("%v", v)
	}
	if list := want(t, 200, "GET", s.far.url+"/jobs", "")["items"].([]any); len(list) != 1 {
		t.Errorf("far has %d jobs, want 1", len(list))
	}
}

// Two jobs cannot use one envelope: the second is refused where it is posted, and one that was posted before the first
// was sent ends, and says why. A redrive wants a new one.
func TestAnEnvelopeMakesOneJob(t *testing.T) {
	s := newStrait(t)
	nearBench, _ := s.benches()
	job := s.farJob(1, nil, nil)
	posts := func(status int, start bool, jobs ...map[string]any) map[string]any {
		t.Helper()
		body, err := json.Marshal(map[string]any{"start": start, "jobs": jobs})
		if err != nil {
			t.Fatal(err)
		}
		return want(t, status, "POST", s.near.url+"/flows", string(body))
	}
	second := maps.Clone(job)
	second["ref"] = 2
	if v := posts(422, true, job, second); !strings.Contains(fmt.Sprint(v), "/jobs/1/envelope") {
		t.Errorf("%v", v)
	}
	f := posts(201, false, job)
	first := fmt.Sprint(s.near.url, "/jobs/", jobsOf(s.starts(job))[1]["id"])
	for want(t, 200, "GET", first, "")["message"] == nil {
		time.Sleep(20 * time.Millisecond)
	}
	if v := posts(409, true, job); v["code"] != "idempotency_conflict" ||
		!strings.Contains(fmt.Sprint(v), "/jobs/0/envelope") {
		t.Errorf("%v", v)
	}
	want(t, 200, "POST", fmt.Sprint(s.near.url, "/flows/", f["id"], "/start"), "{}")
	v := nearBench.flowEnds(f)
	if v["status"] != "error" || !strings.Contains(fmt.Sprint(v["error"]), "sign it anew") {
		t.Errorf("%v", v)
	}
	at := fmt.Sprint(s.near.url, "/flows/", f["id"], "/redrive")
	if v := want(t, 422, "POST", at, `{}`); v["code"] != "signature_required" {
		t.Errorf("%v", v)
	}
	body, err := json.Marshal(map[string]any{"jobs": []any{s.farJob(1, nil, nil)}})
	if err != nil {
		t.Fatal(err)
	}
	want(t, 201, "POST", at, string(body))
}

// A peer is removed while jobs are there: it is asked no more, and they end with the name of that.
func TestTheJobsOfAPeerThatIsRemovedEnd(t *testing.T) {
	s := newStrait(t)
	nearBench, _ := s.benches()
	f := s.starts(s.farJob(1, nil, nil))
	job := fmt.Sprint(s.near.url, "/jobs/", jobsOf(f)[1]["id"])
	for want(t, 200, "GET", job, "")["message"] == nil {
		time.Sleep(20 * time.Millisecond)
	}
	s.delivered(fmt.Sprint(s.near.url, "/messages/", want(t, 200, "GET", job, "")["message"]))
	for until := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) { // its transaction ends
		status, text := send(t, "DELETE", s.near.url+"/peers/far", "")
		if status == 204 {
			break
		}
		if time.Now().After(until) {
			t.Fatal(status, text)
		}
	}
	if v := nearBench.flowEnds(f); !strings.Contains(fmt.Sprint(v["error"]), "peer far was removed") {
		t.Errorf("%v", v)
	}
}

// A job that is not signed as it is written is refused where it is written, and nothing is stored.
func TestAFarJobIsSignedAsItIsWritten(t *testing.T) {
	s := newStrait(t)
	_, stranger, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	same := func(*message.Signed) {}
	without := func(name string) map[string]any {
		j := s.farJob(1, nil, nil)
		delete(j, name)
		return j
	}
	with := func(name string, value any) map[string]any {
		j := s.farJob(1, nil, nil)
		j[name] = value
		return j
	}
	signed := func(change func(*message.Signed)) map[string]any { return s.signed(s.key, change, 1, nil, nil) }
	for name, c := range map[string]struct {
		job     map[string]any
		status  int
		code    string
		pointer string
	}{
		"no envelope":     {without("envelope"), 422, "signature_required", "/jobs/0/envelope"},
		"no target":       {without("target"), 422, "invalid", "/jobs/0/envelope"},
		"no such peer":    {with("target", map[string]string{"peer": "no"}), 422, "invalid", "/jobs/0/target/peer"},
		"another script":  {with("script", "print(2)"), 422, "invalid", "/jobs/0/script"},
		"another timeout": {with("timeout", 7), 422, "invalid", "/jobs/0/timeout"},
		"another env":     {with("env_vars", map[string]string{"A": "b"}), 422, "invalid", "/jobs/0/env_vars"},
		"a stranger":      {s.signed(stranger, same, 1, nil, nil), 401, "bad_actor_signature", "/jobs/0/envelope"},
		"another context": {signed(func(v *message.Signed) { v.Audience.Context = "shop" }), 401,
			"bad_actor_signature", "/jobs/0/envelope"},
		"a day ago": {signed(func(v *message.Signed) { v.CreatedAt = time.Now().Add(-25 * time.Hour) }), 422, "invalid",
			"/jobs/0/envelope/payload"},
		"a chat": {signed(func(v *message.Signed) { v.Type = "chat" }), 422, "invalid", "/jobs/0/envelope/payload"},
		"two jobs": {signed(func(v *message.Signed) {
			const job = `{"script": "1", "script_type": "python"}`
			v.Jobs = json.RawMessage("[" + job + ", " + job + "]")
		}), 422, "invalid", "/jobs/0/envelope/payload"},
		"a target of its own": {s.farJob(1, nil, map[string]any{"target": map[string]string{"peer": "far"}}), 422,
			"invalid", "/jobs/0/envelope/payload/job/0/target"},
	} {
		body, err := json.Marshal(map[string]any{"jobs": []any{c.job}})
		if err != nil {
			t.Fatal(err)
		}
		v := want(t, c.status, "POST", s.near.url+"/flows", string(body))
		if v["code"] != c.code || !strings.Contains(fmt.Sprint(v["errors"]), c.pointer) {
			t.Errorf("%s: %v, want %s at %s", name, v, c.code, c.pointer)
		}
	}
	v := want(t, 422, "POST", s.near.url+"/messages", `{"to": {"context": "default"}, "message_type": "job",
		"job": [{"script": "1", "script_type": "python", "target": {"peer": "far"}}]}`)
	if !strings.Contains(fmt.Sprint(v["errors"]), "/job/0/target") {
		t.Errorf("%v", v)
	}
	if list := want(t, 200, "GET", s.near.url+"/flows", "")["items"].([]any); len(list) != 0 {
		t.Errorf("%d flows are stored", len(list))
	}
}
