package flows_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/pg/flows"
	"github.com/postern-dev/postern/internal/pgtest/cut"
)

func spec(ref int64, on ...int64) flow.Spec {
	return flow.Spec{Ref: &ref, Script: "1", ScriptType: "python", Timeout: time.Minute, Dependends: on}
}

func (w *world) flowOf(id string) *flows.Flow {
	w.T.Helper()
	f, err := w.S.Flows.Flow(w.Ctx, w.ID, uuid.MustParse(id))
	w.Must(err)
	return f
}

// A flow is started by a process that dies before its jobs have transactions. A job that is added then, and needs one
// of them, waits for the look that posts them all: the core does not refuse it, and the flow does not end.
func TestAJobIsAddedBehindOneThatIsNotPosted(t *testing.T) {
	w := newWorld(t)
	s, cutter := w.behindCutter()
	var id string
	for n := 1; id == ""; n++ {
		if n > 200 {
			t.Fatal("no flow was started without the transactions of its jobs")
		}
		cutter.Arm(&cut.Point{Statement: n, Where: cut.Before}, nil)
		_, _ = s.Flows.PostFlow(w.Ctx, w.By, flows.FlowSpec{Start: true, Jobs: []flow.Spec{spec(1)}})
		cutter.Disarm()
		w.Scan(`SELECT coalesce(max(j.flow_id::text), '')
			FROM postern.job j
			JOIN postern.flow f USING (flow_id)
			WHERE j.tx_open AND j.queue_id IS NULL AND f.released_at IS NOT NULL`, &id)
	}
	f := w.flowOf(id)
	w.Must(w.S.Flows.AddJobs(w.Ctx, w.By, f.ID, []flow.Spec{spec(2, 1), spec(3, 2)}))
	if f = w.flowOf(id); f.Status.Ended() {
		t.Fatalf("the flow is %s: %s %s", f.Status, f.Code, f.Error)
	}
	w.Later(time.Minute)
	for range 2 {
		_, err := w.S.Flows.Repost(w.Ctx)
		w.Must(err)
	}
	var placed int
	w.Scan(`SELECT count(queue_id) FROM postern.job WHERE flow_id = '`+id+`'`, &placed)
	if f = w.flowOf(id); placed != 3 || f.Status.Ended() {
		t.Errorf("%d of 3 jobs have a transaction, and the flow is %s: %s", placed, f.Status, f.Error)
	}
}

// The variables of a flow and of a job, and prerequisites of all jobs, are counted together, also of what comes later.
func TestWhatIsTooMuchTogetherIsRefused(t *testing.T) {
	w := newWorld(t)
	half := strings.Repeat("x", flow.MaxEnv*2/3)
	large := spec(1)
	large.Env = map[string]string{"JOB": half}
	env := map[string]string{"FLOW": half}
	refused := func(what, pointer string, err error) {
		t.Helper()
		if f := fault.As(err); err == nil || len(f.Fields) == 0 || f.Fields[0].Pointer != pointer {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := w.S.Flows.PostFlow(w.Ctx, w.By, flows.FlowSpec{Env: env, Jobs: []flow.Spec{large}})
	refused("a flow", "/jobs/0/env_vars", err)
	f, err := w.S.Flows.PostFlow(w.Ctx, w.By, flows.FlowSpec{Jobs: []flow.Spec{large}})
	w.Must(err)
	refused("a change", "/env_vars", w.S.Flows.PatchFlow(w.Ctx, w.By, f.ID, env, f.Tag()))
	g, err := w.S.Flows.PostFlow(w.Ctx, w.By, flows.FlowSpec{Env: env, Jobs: []flow.Spec{spec(1)}})
	w.Must(err)
	large.Ref = spec(2).Ref
	refused("a job that is added", "/jobs/0/env_vars", w.S.Flows.AddJobs(w.Ctx, w.By, g.ID, []flow.Spec{large}))
	for n := int64(2); n < 40; n++ {
		j := spec(n)
		for k := range flow.MaxNeeds {
			j.Prerequisites = append(j.Prerequisites, strings.Repeat("p", k+1))
		}
		if err = w.S.Flows.AddJobs(w.Ctx, w.By, g.ID, []flow.Spec{j}); err != nil {
			break
		}
	}
	refused("prerequisites", "/jobs", err)
}
