package demo

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
)

//go:embed job.py
var jobScript string

// Runners is how the demo of flows has jobs executed.
type Runners struct {
	File  string                                          // to which scripts append
	Far   string                                          // the address of the API of another installation
	Start func(api, name string) (kill func(), err error) // kill ends it as kill -9 does, and waits until it is gone
}

// jobSample is a job of the demo, and how it must end.
type jobSample struct {
	step, note    string
	ref           int64
	needs         []int64
	more          string // further members of the job, as JSON
	status, code  string
	tries, lapses int
	far           bool // the other installation executes it
}

// flowSample is a flow of the demo.
type flowSample struct {
	name, status string
	jobs         []jobSample
}

// approval is what a job of the demo waits for.
const approval = "ok by finance"

var flowSamples = []flowSample{
	{"diamond", "finished", []jobSample{
		{"first", "the top of a diamond", 1, nil, ``, "finished", "", 1, 0, false},
		{"flaky", "fails twice, then succeeds", 2, []int64{1}, `"retries": 2`, "finished", "", 3, 0, false},
		{"approved", "waits for an approval", 3, []int64{1}, `"prerequisites": ["` + approval + `"]`, "finished", "",
			1, 0, false},
		{"doomed", "its runner is killed with -9: another one executes it", 4, []int64{1}, `"topic": "TOPIC"`,
			"finished", "", 1, 1, false},
		{"last", "reads the results of three", 5, []int64{2, 3, 4}, ``, "finished", "", 1, 0, false},
	}},
	{"poison", "error", []jobSample{
		{"first", "goes well", 1, nil, ``, "finished", "", 1, 0, false},
		{"poison", "fails, and ends its flow", 2, []int64{1}, ``, "error", "exit", 1, 0, false},
		{"sleeper", "runs meanwhile: it is stopped", 3, []int64{1}, ``, "error", "stopped", 1, 0, false},
		{"after", "needs the poisonous one", 4, []int64{2}, ``, "error", "dependency_failed", 0, 0, false},
		{"aside", "needs the one that was stopped", 5, []int64{3}, ``, "error", "flow_aborted", 0, 0, false},
	}},
	{"abroad", "finished", []jobSample{
		{"first", "the top of a diamond", 1, nil, ``, "finished", "", 1, 0, false},
		{"flaky", "fails twice at the other installation, then succeeds", 2, []int64{1}, `"retries": 2`, "finished", "",
			3, 0, true},
		{"there", "is executed at the other installation", 3, []int64{1}, ``, "finished", "", 1, 0, true},
		{"last", "reads the results of both", 4, []int64{2, 3}, ``, "finished", "", 1, 0, false},
	}},
}

// jobRow is what the demo reads of a job.
type jobRow struct {
	ID        string            `json:"id"`
	Ref       int64             `json:"ref"`
	Message   string            `json:"message"` // of one that another installation executes: what carries it
	Status    string            `json:"status"`
	Result    map[string]string `json:"result"`
	CreatedAt time.Time         `json:"created_at"`
	EndedAt   *time.Time        `json:"ended_at"`
	Error     *struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// flowRow is what the demo reads of a flow.
type flowRow struct {
	ID       string            `json:"id"`
	Status   string            `json:"status"`
	Count    int               `json:"job_count"`
	Finished int               `json:"finished_count"`
	EndedAt  *time.Time        `json:"ended_at"`
	Result   map[string]string `json:"result"`
	Jobs     []jobRow          `json:"jobs"`
}

// wrote is a line that a script appended to the file.
type wrote struct {
	Job    string            `json:"job"`
	Step   string            `json:"step"`
	Began  bool              `json:"began"`
	Result map[string]string `json:"result"`
}

type flowRun struct {
	run
	flows  []flowRow
	far    *far
	kill   func() // the runner that is to die; nil once it is dead
	met    bool   // the approval was given
	killed bool
}

// RunFlows is Run for flows: it has three of them executed by runners that are processes, jobs of the third by another
// installation. It gives an approval on the way, kills a runner in the middle of a job, asks the other installation a
// question, and compares what each script wrote to a file with what is recorded of it. The Summary counts jobs; done
// are those that have finished.
func RunFlows(ctx context.Context, c Config) (*Summary, error) {
	if c.Out == nil {
		c.Out = io.Discard
	}
	r := &flowRun{run: run{Config: c, client: &client{base: c.API, http: &http.Client{Timeout: 30 * time.Second}},
		began: time.Now()}}
	defer r.client.http.CloseIdleConnections()
	if err := r.setup(ctx); err != nil {
		return nil, err
	}
	if err := r.post(ctx); err != nil {
		return nil, err
	}
	if err := r.watch(ctx); err != nil {
		return nil, err
	}
	return r.sum(ctx)
}

func (r *flowRun) topic() string { return "spare-" + r.Name }

// setup starts two runners: one for most jobs, and one that is to die. The heir of that one is started later.
func (r *flowRun) setup(ctx context.Context) error {
	spare := map[string]any{"local": false, "topic": r.topic(), "slots": 1, "ttl": "3s"}
	for name, settings := range map[string]map[string]any{
		"demo-" + r.Name:   {"slots": 8},
		"doomed-" + r.Name: spare,
		"heir-" + r.Name:   spare,
	} {
		if err := r.client.do(ctx, http.MethodPut, "/runners/"+name, settings, nil); err != nil {
			return fmt.Errorf("set up the runner %s: %w", name, err)
		}
	}
	if _, err := r.Runners.Start(r.API, "demo-"+r.Name); err != nil {
		return err
	}
	var err error
	if r.kill, err = r.Runners.Start(r.API, "doomed-"+r.Name); err != nil {
		return err
	}
	if r.far, err = meet(ctx, r.client, r.Config); err != nil {
		return fmt.Errorf("make the two installations known to each other: %w", err)
	}
	_, err = r.Runners.Start(r.Runners.Far, "far-"+r.Name)
	return err
}

// post starts the flows.
func (r *flowRun) post(ctx context.Context) error {
	for _, f := range flowSamples {
		var jobs []json.RawMessage
		for _, j := range f.jobs {
			job := map[string]any{"ref": j.ref, "script": jobScript, "script_type": "python", "timeout": 900,
				"dependends": j.needs, "env_vars": map[string]string{"STEP": j.step}}
			more := map[string]any{}
			text := bytes.ReplaceAll([]byte("{"+j.more+"}"), []byte("TOPIC"), []byte(r.topic()))
			if err := json.Unmarshal(text, &more); err != nil {
				return err
			}
			maps.Copy(job, more)
			if j.far {
				if err := r.far.sign(job, map[string]string{"STEP": j.step, "DEMO_FILE": r.Runners.File}); err != nil {
					return err
				}
			}
			b, err := json.Marshal(job)
			if err != nil {
				return err
			}
			jobs = append(jobs, b)
		}
		var made flowRow
		if err := r.far.as.do(ctx, http.MethodPost, "/flows", map[string]any{"start": true, "jobs": jobs,
			"env_vars": map[string]string{"DEMO_FILE": r.Runners.File}}, &made); err != nil {
			return fmt.Errorf("start the flow %s: %w", f.name, err)
		}
		r.flows = append(r.flows, made)
	}
	return r.far.ask(ctx)
}

// watch looks after the flows until both have ended, with all of their jobs.
func (r *flowRun) watch(ctx context.Context) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for said := (time.Time{}); ; {
		open := 0
		for i := range r.flows {
			id := r.flows[i].ID
			r.flows[i] = flowRow{}
			if err := r.client.do(ctx, http.MethodGet, "/flows/"+id, nil, &r.flows[i]); err != nil {
				return err
			}
			if !over(r.flows[i].Status) { // it is read before its jobs are
				open++
			}
			for _, j := range r.flows[i].Jobs {
				if !over(j.Status) {
					open++
				}
			}
		}
		if err := r.act(ctx); err != nil {
			return err
		}
		if open == 0 || time.Since(said) > time.Second {
			said = time.Now()
			fmt.Fprintf(r.Out, "%4.1f s", time.Since(r.began).Seconds())
			for i, f := range r.flows {
				fmt.Fprintf(r.Out, "  %s: %s, %d of %d jobs have finished", flowSamples[i].name, f.Status, f.Finished,
					f.Count)
			}
			fmt.Fprintln(r.Out)
		}
		if open == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// over says whether a flow or a job has ended.
func over(status string) bool { return status == "finished" || status == "error" }

// act gives the approval once the first job has finished, and kills a runner in the middle of its job.
func (r *flowRun) act(ctx context.Context) error {
	jobs := r.flows[0].Jobs
	if len(jobs) < len(flowSamples[0].jobs) {
		return errors.New("the API does not tell the jobs of a flow")
	}
	if !r.met && jobs[0].Status == "finished" {
		r.met = true
		if err := r.client.do(ctx, http.MethodPost, "/jobs/"+jobs[2].ID+"/prerequisites", map[string]any{
			"met": []string{approval}, "reason": "the demo gives it"}, nil); err != nil {
			return fmt.Errorf("give the approval: %w", err)
		}
	}
	if r.killed {
		return nil
	}
	lines, err := r.lines()
	if err != nil || len(lines[jobs[3].ID]) == 0 {
		return err
	}
	r.kill()
	r.killed = true
	fmt.Fprintln(r.Out, "        a runner is killed in the middle of its job")
	_, err = r.Runners.Start(r.API, "heir-"+r.Name)
	return err
}

// lines reads what scripts have written, by their jobs.
func (r *flowRun) lines() (map[string][]wrote, error) {
	b, err := os.ReadFile(r.Runners.File)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	found := map[string][]wrote{}
	for _, line := range bytes.Split(b, []byte("\n")) {
		var w wrote
		if json.Unmarshal(line, &w) == nil {
			found[w.Job] = append(found[w.Job], w)
		}
	}
	return found, nil
}

// sum compares every end with what its sample wants, and with what its script has written.
func (r *flowRun) sum(ctx context.Context) (*Summary, error) {
	s := &Summary{
		kind:      ofFlows,
		Run:       r.Name,
		Queues:    len(r.flows),
		Senders:   4,
		States:    []StateTime{},
		Failures:  []Failure{},
		Differing: []Difference{},
		Example:   "flows/" + r.flows[1].ID,
	}
	lines, err := r.lines()
	if err != nil {
		return nil, err
	}
	stays := map[outbox.State][]time.Duration{}
	var first, last time.Time
	for i, f := range r.flows {
		if want := flowSamples[i]; f.Status != want.status {
			s.differ(want.name, "ended %s, want %s", f.Status, want.status)
		}
		for k, j := range f.Jobs {
			want := flowSamples[i].jobs[k]
			if err := r.client.do(ctx, http.MethodGet, "/jobs/"+j.ID, nil, &j); err != nil {
				return nil, err
			}
			at, executed := r.client, j.ID
			if want.far {
				if at, executed, err = r.far.job(ctx, j); err != nil {
					return nil, err
				}
			}
			tries, lapses, err := triesOf(ctx, at, executed)
			if err != nil {
				return nil, err
			}
			s.addJob(flowSamples[i].name, want, j, tries, lapses, lines[executed])
			if got := f.Result[fmt.Sprint(j.Ref, ".n")]; f.Status == "finished" && got != j.Result["n"] {
				s.differ(want.step, "the result of its flow has %q, its own %v", got, j.Result)
			}
			if err := r.visits(ctx, j.ID, stays); err != nil {
				return nil, err
			}
			if first.IsZero() || j.CreatedAt.Before(first) {
				first = j.CreatedAt
			}
			if j.EndedAt != nil && j.EndedAt.After(last) {
				last = *j.EndedAt
			}
		}
	}
	if err := r.far.answered(ctx, s); err != nil {
		return nil, err
	}
	s.timed(first, last)
	s.stayed([]outbox.State{"dispatched", "waiting_for_prerequisites", "started"}, stays)
	return s, nil
}

// differ notes something that is not as it should be.
func (s *Summary) differ(what, format string, args ...any) {
	s.Unexpected++
	s.Differing = append(s.Differing, Difference{what, fmt.Sprintf(format, args...)})
}

// addJob counts one job that has ended, and compares it with its sample and with what its script has written: one line
// for each time that it began, and one for its result.
func (s *Summary) addJob(flow string, want jobSample, j jobRow, tries, lapses int, lines []wrote) {
	name, code, message := flow+"/"+want.step, "", ""
	if j.Error != nil {
		code, message = j.Error.Code, strings.Join(strings.Fields(j.Error.Message), " ")
	}
	s.Transactions++
	s.Retries += max(tries-1, 0)
	if j.Status == "finished" {
		s.Done++
	} else {
		s.Failed++
		s.Failures = append(s.Failures, Failure{UID: name, State: outbox.State(j.Status), Code: code, Message: message,
			Note: want.note})
	}
	if j.Status != want.status || code != want.code || tries != want.tries || lapses != want.lapses {
		s.differ(name, "ended %s %s after %d tries and %d lost runners, want %s %s after %d and %d", j.Status, code,
			tries, lapses, want.status, want.code, want.tries, want.lapses)
	}
	began := 0
	var results []map[string]string
	for _, l := range lines {
		if l.Began {
			began++
		} else {
			results = append(results, l.Result)
		}
	}
	if began != tries+lapses {
		s.differ(name, "its script began %d times, and %d tries with %d lost runners are recorded", began, tries,
			lapses)
	}
	switch {
	case j.Status == "finished" && (len(results) != 1 || !maps.Equal(results[0], j.Result)):
		s.differ(name, "its script wrote the results %v, and %v is recorded", results, j.Result)
	case j.Status != "finished" && len(results) > 0:
		s.differ(name, "its script wrote the results %v, and it is %s", results, j.Status)
	}
}

// triesOf counts the tries of a job that a runner held, and the runners that were lost with it.
func triesOf(ctx context.Context, at *client, job string) (n, lapses int, err error) {
	var p page[struct {
		State  string
		Runner *string
		Lapses int
	}]
	err = at.do(ctx, http.MethodGet, "/jobs/"+job+"/tries", nil, &p)
	for _, t := range p.Items {
		if t.Runner != nil {
			n++
		}
		lapses += t.Lapses
	}
	return n, lapses, err
}

// visits adds how long a job was in each state.
func (r *flowRun) visits(ctx context.Context, job string, stays map[outbox.State][]time.Duration) error {
	var h page[struct {
		At time.Time
		To outbox.State
	}]
	if err := r.client.do(ctx, http.MethodGet, "/jobs/"+job+"/history", nil, &h); err != nil {
		return err
	}
	for i := 0; i+1 < len(h.Items); i++ {
		since := h.Items[i].At
		for i+2 < len(h.Items) && h.Items[i+1].To == h.Items[i].To {
			i++
		}
		stays[h.Items[i].To] = append(stays[h.Items[i].To], h.Items[i+1].At.Sub(since))
	}
	return nil
}
