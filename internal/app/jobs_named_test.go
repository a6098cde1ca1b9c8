package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/runner"
)

// keyed posts with an Idempotency-Key.
func (b *jobBench) keyed(status int, path, key, body string) map[string]any {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), "POST", b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	var v map[string]any
	if err := json.NewDecoder(res.Body).Decode(&v); err != nil || res.StatusCode != status {
		b.t.Fatalf("POST %s with key %s: %d, want %d: %v %v", path, key, res.StatusCode, status, v, err)
	}
	if replayed := res.Header.Get("Idempotent-Replay") == "true"; replayed != (status == 200) {
		b.t.Errorf("POST %s with key %s: %d, and Idempotent-Replay %v", path, key, status, replayed)
	}
	return v
}

// The same Idempotency-Key is the same job, or the same flow; with other content it is refused, and says what differs.
func TestAKeyNamesOneJobAndOneFlow(t *testing.T) {
	b := newJobBench(t)
	one := `{"script": "print(1)", "script_type": "python", "env_vars": {"A": "1"}}`
	flow := `{"start": true, "jobs": [{"ref": 1, "script": "print(1)", "script_type": "python"}]}`
	for path, body := range map[string]string{"/jobs": one, "/flows": flow} {
		first := b.keyed(201, path, "k1", body)
		if again := b.keyed(200, path, `"k1"`, body); again["id"] != first["id"] {
			t.Errorf("%s: %v and %v", path, first["id"], again["id"])
		}
		if other := b.keyed(201, path, "k2", body); other["id"] == first["id"] {
			t.Errorf("%s: another key is %v, too", path, other["id"])
		}
		v := b.keyed(409, path, "k1", strings.Replace(body, "print(1)", "print(2)", 1))
		existing, _ := v["existing"].(map[string]any)
		if v["code"] != "idempotency_conflict" || existing["id"] != first["id"] || len(v["differs"].([]any)) != 1 ||
			!strings.Contains(fmt.Sprint(v["detail"]), `Idempotency-Key \"k1\"`) &&
				!strings.Contains(fmt.Sprint(v["detail"]), `Idempotency-Key "k1"`) {
			t.Errorf("%s: %v", path, v)
		}
		b.keyed(422, path, "a b", body)
		withRef := strings.Replace(body, "{", `{"ref": 7, `, 1)
		named := b.keyed(201, path, "k3", withRef)
		if again := want(t, 200, "POST", b.url+path, withRef); again["id"] != named["id"] {
			t.Errorf("%s: the ref names %v, the key %v", path, again["id"], named["id"])
		}
		b.keyed(409, path, "k3", body) // without its ref
		var got sync.Map
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				req, _ := http.NewRequestWithContext(t.Context(), "POST", b.url+path, strings.NewReader(body))
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("Idempotency-Key", "at-once")
				res, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				defer res.Body.Close()
				var v map[string]any
				_ = json.NewDecoder(res.Body).Decode(&v)
				got.Store(fmt.Sprint(v["id"]), true)
			})
		}
		all.Wait()
		ids := 0
		got.Range(func(any, any) bool { ids++; return true })
		if ids != 1 {
			t.Errorf("%s: one key at once made %d", path, ids)
		}
	}
}

// A replay is given what the runner was: script, frozen environment, inputs, limits. It is audited.
func TestAReplayIsGivenWhatTheRunnerWas(t *testing.T) {
	b := newJobBench(t)
	r := b.runner("r")
	f := b.flow(`{"env_vars": {"A": "f"}, "start": true, "jobs": [{P, "ref": 1},
		{P, "ref": 2, "dependends": [1], "env_vars": {"B": "j"}, "timeout": 7, "network": true}]}`)
	second := fmt.Sprint("/jobs/", jobsOf(f)[2]["id"])
	if v := want(t, 409, "POST", b.url+second+"/replay", `{}`); v["code"] != "wrong_state" {
		t.Errorf("%v", v)
	}
	r.does(r.takes(1), map[string]string{"k": "1"})
	held := r.one()
	r.finish(200, held, map[string]string{"k": "2"})
	b.flowEnds(f)
	var given runner.Job
	b.ask(200, "POST", second+"/replay", map[string]string{"reason": "why"}, 0, &given)
	if !reflect.DeepEqual(given, held) {
		t.Errorf("a runner was given\n%+v, the replay\n%+v", held, given)
	}
	audit := want(t, 200, "GET", b.url+"/audit?object="+second, "")["items"].([]any)
	if row := audit[0].(map[string]any); row["action"] != "replay" || row["reason"] != "why" {
		t.Errorf("%v", row)
	}
	want(t, 404, "POST", b.url+"/jobs/01a21b07-591a-7dc3-b182-288c7f50c2c6/replay", `{}`)
}

// A runner that is not local takes what names its topic, of the types that it can execute, and nothing else; the others
// do not take that.
func TestARunnerThatIsNotLocalTakesByItsTopicAlone(t *testing.T) {
	b := newJobBench(t)
	want(t, 201, "PUT", b.url+"/runners/far", `{"local": false, "topic": "gpu", "slots": 4}`)
	near, far := b.runner("near"), b.runner("far")
	plain := b.post(`{"script": "print(1)", "script_type": "python"}`)
	if a := far.claim(4, "1s"); len(a.Jobs) != 0 {
		t.Errorf("a runner of a topic is handed %+v", a.Jobs)
	}
	if j := near.one(); j.Job != plain["id"] {
		t.Errorf("%+v", j)
	}
	there := b.post(`{"script": "print(2)", "script_type": "python", "topic": "gpu"}`)
	want(t, 201, "POST", b.url+"/transactions",
		`{"type": "job.python", "data": {"script": "print(3)", "topic": "gpu"}}`)
	if a := near.claim(4, "1s"); len(a.Jobs) != 0 {
		t.Errorf("a local runner is handed %+v", a.Jobs)
	}
	if got := far.takes(2); got[there["id"].(string)].Script != "print(2)" || there["topic"] != "gpu" {
		t.Errorf("%+v", got)
	}
	nowhere := b.post(`{"script": "print(4)", "script_type": "python", "topic": "tpu"}`)
	other := b.post(`{"script": "print(5)", "script_type": "sal", "topic": "gpu"}`)
	for _, job := range []map[string]any{nowhere, other} {
		var v map[string]any
		for range 100 {
			if v = want(t, 200, "GET", fmt.Sprint(b.url, "/jobs/", job["id"], "/why"), ""); strings.Contains(
				fmt.Sprint(v), "no_runner") {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if text := fmt.Sprint(v); !strings.Contains(text, "no_runner") || !strings.Contains(text, "topic") {
			t.Errorf("%s", text)
		}
	}
	for _, topic := range []string{"a b", "-", strings.Repeat("x", 201)} {
		v := want(t, 422, "POST", b.url+"/jobs", `{"script": "1", "script_type": "python", "topic": "`+topic+`"}`)
		if !strings.Contains(fmt.Sprint(v["errors"]), "/topic") {
			t.Errorf("%v", v)
		}
	}
}
