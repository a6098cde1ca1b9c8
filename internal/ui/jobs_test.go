package ui_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// says keeps a line of output of the only try of a job, which a runner holds.
func (h *house) says(job, text string) {
	h.t.Helper()
	_, err := h.store.Pool().Exec(h.t.Context(), `INSERT INTO postern.try_log (try_id, fence, n, at, stream, text)
		SELECT t.try_id, 1, 1 + (SELECT count(*) FROM postern.try_log l WHERE l.try_id = t.try_id), clock_timestamp(),
			'stdout', $2
		FROM postern.job_try t
		WHERE t.job_id = $1`, job, text)
	if err != nil {
		h.t.Fatal(err)
	}
}

// hears reads a stream until it has a text.
func hears(t *testing.T, res *http.Response, text string) {
	t.Helper()
	end := time.AfterFunc(30*time.Second, func() { res.Body.Close() })
	defer end.Stop()
	var all strings.Builder
	b := make([]byte, 1<<16)
	for !strings.Contains(all.String(), text) {
		n, err := res.Body.Read(b)
		if err != nil {
			t.Fatalf("the stream has no %q: %v", text, err)
		}
		all.Write(b[:n])
	}
}

// While a job runs, its page tells its output as it is kept.
func TestAJobShowsItsOutputWhileItRuns(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	job := h.scenario("default")["job"]
	h.api("PUT", "/runners/box", `{"script_types": ["python"]}`)
	h.api("POST", "/runners/box/register", `{"instance": "one", "script_types": ["python"]}`)
	_, err := h.store.Pool().Exec(t.Context(), `INSERT INTO postern.job_try (try_id, context_id, job_id, queue_id, seq,
			attempt, token, lane, was, state, fence, runner_id, offered_at, held_at, deadline_at)
		SELECT gen_random_uuid(), j.context_id, j.job_id, coalesce(j.queue_id, 1), coalesce(j.seq, 1),
			1, 'one', 'python', 'Offered', 'Held', 1, r.runner_id, clock_timestamp(), clock_timestamp(),
			clock_timestamp() + interval '1 hour'
		FROM postern.job j
		CROSS JOIN postern.runner r
		WHERE j.job_id = $1`, job)
	if err != nil {
		t.Fatal(err)
	}
	page := "/ui/c/default/jobs/" + job
	first := b.get(page)
	if first.status != 200 || !strings.Contains(first.text, "none yet") {
		t.Errorf("%d %s", first.status, first.text)
	}
	if l := first.levers(); len(l) != 1 || l[0] != "POST /jobs/"+job+"/cancel" {
		t.Errorf("the page has the levers %v, want the one that does something here", l)
	}
	h.says(job, markup)
	s := b.get(page)
	if !strings.Contains(s.text, `<span class="stdout">&lt;script&gt;alert`) ||
		strings.Contains(s.text, "<script>alert") {
		t.Errorf("the output is not there as text: %s", s.text)
	}
	r, _ := http.NewRequestWithContext(t.Context(), "GET", h.url+page+"?live=1", nil)
	res, err := b.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	h.says(job, "half of it is done")
	hears(t, res, "half of it is done")
	for range 300 {
		h.says(job, strings.Repeat("y", 1000))
	}
	s = b.get(page)
	if strings.Contains(s.text, "half of it") || !strings.Contains(s.text, "The end of it") || len(s.text) > 100_000 {
		t.Errorf("a long output: %d bytes", len(s.text))
	}
	if s := b.get("/ui/c/default/runners/box"); s.status != 200 || !strings.Contains(s.text, job) {
		t.Errorf("the runner does not show its jobs: %d %s", s.status, s.text)
	}
}

func TestAFlowIsDrawn(t *testing.T) {
	h := newHouse(t, "none")
	f := h.api("POST", "/flows", `{"jobs": [{"ref": 1, "script_type": "python", "script": "1"},
		{"ref": 2, "script_type": "python", "script": "2", "dependends": [1]}]}`)
	s := h.browser().get("/ui/c/default/flows/" + fmt.Sprint(f["id"]))
	if s.status != 200 {
		t.Fatalf("%d %s", s.status, s.text)
	}
	for _, want := range []string{`<path data-from="1" data-to="2"`, `<g data-ref="2" data-status="dispatched">`,
		"<b>0</b> of 2 jobs finished", `href="/ui/c/default/jobs/`} {
		if !strings.Contains(s.text, want) {
			t.Errorf("the page of a flow lacks %q: %s", want, s.text)
		}
	}
}

// Each machine says how many are in each state now, and as of when.
func TestEachMachineIsCounted(t *testing.T) {
	h := newHouse(t, "none")
	h.scenario("default")
	h.api("POST", "/flows", `{"jobs": [{"ref": 1, "script_type": "python", "script": "1"}]}`)
	b := h.browser()
	for _, x := range h.api("GET", "/machines", "")["items"].([]any) {
		m := x.(map[string]any)
		name := m["name"].(string)
		n := h.api("GET", "/machines/"+name+"/states", "")
		known := map[string]bool{}
		for _, s := range m["states"].([]any) {
			known[s.(map[string]any)["name"].(string)] = true
		}
		for state := range n["states"].(map[string]any) {
			if !known[state] {
				t.Errorf("%s has no state %q", name, state)
			}
		}
		if s := b.get("/ui/c/default/machines/" + name); s.status != 200 || !strings.Contains(s.text, "As of <time") {
			t.Errorf("%s: %d %s", name, s.status, s.text)
		}
	}
	counted := regexp.MustCompile(`>[1-9]\d* now<`)
	for _, name := range []string{"transaction", "queue", "flow", "job"} {
		if s := b.get("/ui/c/default/machines/" + name); !counted.MatchString(s.text) {
			t.Errorf("nothing is counted in %s: %s", name, s.text)
		}
	}
	if s := b.get("/ui/c/default/machines/none"); s.status != 404 {
		t.Errorf("a machine that is not there: %d", s.status)
	}
}

// Queues are found by how long their head has stood.
func TestQueuesAreFoundByHowLongTheyStand(t *testing.T) {
	h := newHouse(t, "none")
	b := h.browser()
	h.scenario("default")
	_, err := h.store.Pool().Exec(t.Context(), `UPDATE postern.queue q SET entered_at = entered_at - interval '1 hour'
		FROM postern.queue_name n
		WHERE n.queue_id = q.queue_id AND n.name = 'line'`)
	if err != nil {
		t.Fatal(err)
	}
	const line, other = `href="/ui/c/default/queues/line"`, `href="/ui/c/default/queues/other"`
	for query, want := range map[string][2]bool{
		"":                           {true, true},
		"?stuck_for=10m":             {true, false},
		"?stuck_for=2h":              {false, false},
		"?stuck_for=10m&prefix=li":   {true, false},
		"?stuck_for=10m&state=RETRY": {false, false},
	} {
		s := b.get("/ui/c/default/queues" + query)
		has := [2]bool{strings.Contains(s.text, line), strings.Contains(s.text, other)}
		if s.status != 200 || has != want {
			t.Errorf("queues%s: %d %v, want %v", query, s.status, has, want)
		}
	}
	if s := b.get("/ui/c/default/queues?stuck_for=long"); s.status != 422 || !strings.Contains(s.text, "such as 10m") {
		t.Errorf("no duration: %d %s", s.status, s.text)
	}
}

// The first page draws what ended in each hour, as the roll-up has it.
func TestTheFirstPageDrawsTheLastHours(t *testing.T) {
	h := newHouse(t, "none")
	h.scenario("default")
	_, err := h.store.Pool().Exec(t.Context(), `INSERT INTO postern.rollup (context_id, hour, type, accepted, done,
			failed, unresolved, cancelled, retries, as_of)
		SELECT $1, date_trunc('hour', clock_timestamp(), 'UTC') - interval '1 hour' * i, t, 10 * i, 8 * i,
			i, 0, i, 0, clock_timestamp()
		FROM generate_series(1, 30) i
		CROSS JOIN unnest('{A,B}'::text[]) t`, h.store.Context("default").ID)
	if err != nil {
		t.Fatal(err)
	}
	s := h.browser().get("/ui/c/default/now")
	for _, want := range []string{": 460 accepted, 368 done, 46 failed, 46 cancelled</title>",
		"In 24 hours 5520 were accepted, 4416 done and 552 failed; at most 460 in an hour"} {
		if !strings.Contains(s.text, want) {
			t.Errorf("the first page lacks %q: %s", want, s.text)
		}
	}
}
