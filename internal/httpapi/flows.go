package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/pg/flows"
)

func (a *API) flowRoutes() {
	const tag = "flows"
	post(a, tag, "/flows", "post-flow", "Have runners execute jobs that need each other", a.postFlow, 201, 200)
	post(a, tag, "/flows:validate", "validate-flow", "Check a flow, and store nothing", a.validateFlow, 200)
	get(a, tag, "/flows", "list-flows", "List flows, the newest first", a.listFlows)
	get(a, tag, "/flows/{id}", "get-flow", "Read one flow", a.getFlow)
	get(a, tag, "/flows/{id}/history", "get-flow-history", "What happened to a flow", a.getFlowHistory)
	get(a, tag, "/flows/{id}/why", "get-flow-why", "What a flow waits for", a.whyFlow)
	op := operation(tag, http.MethodGet, "/flows/{id}/dag", "get-flow-dag", "Its jobs, and which need which", nil)
	dagAnswers(&op, a.huma.OpenAPI().Components.Schemas)
	register(a, op, a.getFlowDAG)
	patch(a, tag, "/flows/{id}", "patch-flow", "Change the environment of jobs that are not posted yet", a.patchFlow)
	post(a, tag, "/flows/{id}/start", "start-flow", "Post its jobs", a.startFlow, 200)
	post(a, tag, "/flows/{id}/cancel", "cancel-flow", "End it, and have what runs stopped", a.cancelFlow, 200, 202)
	post(a, tag, "/flows/{id}/redrive", "redrive-flow",
		"Do it again in a new flow, without what had finished and has not changed", a.redriveFlow, 201, 200)
	post(a, tag, "/flows/{id}/jobs", "post-flow-jobs", "Add jobs to a flow that has not ended", a.postFlowJobs, 200)
	remove(a, tag, "/flows/{id}/jobs/{ref}", "delete-flow-job",
		"Remove a job that has not started, and that no other needs", a.deleteFlowJob)
}

// flowJob is what a client writes of a job of a flow.
type flowJob struct {
	JobInput
	Dependends []int64 `json:"dependends,omitempty" doc:"Refs of the jobs that it needs, at most 64."`
}

// flowInput is what a client writes of a flow.
type flowInput struct {
	Ref   *int64            `json:"ref,omitempty" doc:"0 to 4294967295, the caller's own: it names one flow."`
	Env   map[string]string `json:"env_vars,omitempty" doc:"For all its jobs; what a job sets itself wins."`
	Jobs  []flowJob         `json:"jobs,omitempty" doc:"At most 1000 with their prerequisites."`
	Start bool              `json:"start,omitempty" doc:"Start it at once."`
}

func specsOf(list []flowJob) ([]flow.Spec, error) {
	specs := make([]flow.Spec, 0, len(list))
	for i := range list {
		s, err := list[i].spec(fmt.Sprintf("/jobs/%d", i), list[i].Dependends)
		if err != nil {
			return nil, err
		}
		specs = append(specs, s)
	}
	return specs, nil
}

// wantAll asks of the jobs of a flow what is asked of one: that its queue is declared, and that it is signed.
func (a *API) wantAll(ctx context.Context, jobs []flow.Spec) error {
	seen := map[string]bool{}
	for i, j := range jobs {
		if err := a.wantSigned(ctx, fmt.Sprintf("/jobs/%d", i), j); err != nil {
			return err
		}
		if seen[j.Queue] {
			continue
		}
		seen[j.Queue] = true
		if err := a.wantsDeclared(ctx, fmt.Sprintf("/jobs/%d/queue", i), j.Queue); err != nil {
			return err
		}
	}
	return nil
}

// spec checks what no schema can.
func (in *flowInput) spec() (s flows.FlowSpec, err error) {
	if in.Ref != nil && (*in.Ref < 0 || *in.Ref > flow.MaxRef) {
		return s, fault.At("/ref", "ref %d: want 0 to %d", *in.Ref, int64(flow.MaxRef))
	}
	if err := flow.CheckEnv("/env_vars", in.Env); err != nil {
		return s, err
	}
	s = flows.FlowSpec{Ref: in.Ref, Env: in.Env, Start: in.Start}
	if s.Jobs, err = specsOf(in.Jobs); err != nil {
		return s, err
	}
	return s, flow.CheckGraph("/jobs", s.Jobs, nil, 0)
}

// flowView is a flow as clients read it.
type flowView struct {
	ID        string            `json:"id"`
	CallerID  string            `json:"caller_id" doc:"who made it, and alone may change and start it"`
	Ref       *int64            `json:"ref"`
	Env       map[string]string `json:"env_vars" doc:"for readers without the values"`
	Status    string            `json:"status" enum:"dispatched,waiting_for_prerequisites,started,finished,error"`
	Jobs      []flowJobView     `json:"jobs,omitempty" doc:"by their refs; not in lists"`
	Count     int               `json:"job_count"`
	Finished  int               `json:"finished_count"`
	Result    json.RawMessage   `json:"result" doc:"of its jobs, as <ref>.<key>; null before it has finished"`
	Truncated bool              `json:"result_truncated,omitempty" doc:"more than 1 MiB: read the results of its jobs"`
	Error     *jobError         `json:"error"`
	RedriveOf *string           `json:"redrive_of"`
	Version   int64             `json:"version"`
	CreatedAt time.Time         `json:"created_at"`
	Released  *time.Time        `json:"released_at" doc:"when somebody started it"`
	StartedAt *time.Time        `json:"started_at" doc:"when a runner took its first job"`
	EndedAt   *time.Time        `json:"ended_at"`
	UpdatedAt time.Time         `json:"updated_at"`
}

type flowJobView struct {
	Ref        int64     `json:"ref"`
	ID         string    `json:"id"`
	Status     string    `json:"status"`
	ScriptType string    `json:"script_type"`
	Dependends []int64   `json:"dependends"`
	Error      *jobError `json:"error"`
}

func (a *API) viewFlow(ctx context.Context, f *flows.Flow, jobs []*flows.Job) flowView {
	v := flowView{
		ID:        f.ID.String(),
		CallerID:  f.Actor,
		Ref:       f.Ref,
		Env:       a.shownEnv(ctx, f.Env),
		Status:    string(f.Status),
		Count:     f.Jobs,
		Finished:  f.Finished,
		Result:    f.Result,
		Truncated: f.Truncated,
		Error:     viewJobError(f.Code, f.Error, f.Cause),
		Version:   f.Tag(),
		CreatedAt: f.CreatedAt.UTC(),
		Released:  utc(f.ReleasedAt),
		StartedAt: utc(f.StartedAt),
		EndedAt:   utc(f.EndedAt),
		UpdatedAt: f.UpdatedAt.UTC(),
	}
	if v.Result == nil {
		v.Result = json.RawMessage("null")
	}
	if f.RedriveOf != nil {
		v.RedriveOf = ptr(f.RedriveOf.String())
	}
	for _, j := range jobs {
		v.Jobs = append(v.Jobs, flowJobView{
			Ref:        *j.Ref,
			ID:         j.ID.String(),
			Status:     string(j.Status),
			ScriptType: j.ScriptType,
			Dependends: list(j.Dependends),
			Error:      viewJobError(j.Code, j.Error, j.Cause),
		})
	}
	return v
}

type postFlowInput struct {
	Key  string `header:"Idempotency-Key" doc:"The same key and body again: the same flow."`
	Body flowInput
}

type flowOutput struct {
	Status   int
	Location string `header:"Location"`
	ETag     string `header:"ETag"`
	Replay   string `header:"Idempotent-Replay" doc:"true when the key or the ref was known already"`
	Applied  string `header:"Preference-Applied"`
	Body     flowView
}

// postFlow stores a flow: 201; 200 for a key or a ref that is known with the same content, 409 with another.
func (a *API) postFlow(ctx context.Context, in *postFlowInput) (*flowOutput, error) {
	spec, err := in.Body.spec()
	if err != nil {
		return nil, err
	}
	if spec.Key, err = keyOf(in.Key); err != nil {
		return nil, err
	}
	if err := a.wantsKey(ctx, spec.Key != "" || spec.Ref != nil, "Idempotency-Key or ref"); err != nil {
		return nil, err
	}
	if err := a.wantAll(ctx, spec.Jobs); err != nil {
		return nil, err
	}
	f, err := a.Store.Flows.PostFlow(ctx, by(ctx, ""), spec)
	if err != nil {
		return nil, err
	}
	return a.madeFlow(ctx, f)
}

func (a *API) madeFlow(ctx context.Context, f *flows.Flow) (*flowOutput, error) {
	out, err := a.flowOutput(ctx, f)
	if err != nil {
		return nil, err
	}
	out.Status, out.Location = http.StatusCreated, "/flows/"+f.ID.String()
	if f.Replay {
		out.Status, out.Replay = http.StatusOK, "true"
	}
	return out, nil
}

func (a *API) flowOutput(ctx context.Context, f *flows.Flow) (*flowOutput, error) {
	jobs, err := a.Store.Flows.JobsOf(ctx, contextID(ctx), f.ID)
	if err != nil {
		return nil, err
	}
	return &flowOutput{Status: http.StatusOK, ETag: etag(f.Tag()), Body: a.viewFlow(ctx, f, jobs)}, nil
}

type validateFlowInput struct {
	Body flowInput
}

type validFlowOutput struct {
	Body struct {
		Jobs int `json:"jobs" doc:"how many"`
	}
}

// validateFlow checks a flow as postFlow does.
func (a *API) validateFlow(ctx context.Context, in *validateFlowInput) (*validFlowOutput, error) {
	spec, err := in.Body.spec()
	if err != nil {
		return nil, err
	}
	if err := a.wantAll(ctx, spec.Jobs); err != nil {
		return nil, err
	}
	out := &validFlowOutput{}
	out.Body.Jobs = len(spec.Jobs)
	return out, a.Store.Flows.CheckTypes(ctx, contextID(ctx), spec.Jobs)
}

// OneFlow is the path of a flow.
type OneFlow struct {
	ID string `path:"id" maxLength:"36"`
}

func (in *OneFlow) id() (uuid.UUID, error) { return uuidOf("flow", in.ID) }

type getFlowInput struct {
	OneFlow
	Wait   string `query:"wait" example:"30s" doc:"How long to wait for its end, at most 60s."`
	Prefer string `header:"Prefer" doc:"wait=N, in seconds."`
}

// getFlow answers a flow, at its end or when the time to wait is over.
func (a *API) getFlow(ctx context.Context, in *getFlowInput) (*flowOutput, error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	var f *flows.Flow
	applied, err := a.untilEnd(ctx, in.Wait, in.Prefer, func() (bool, error) {
		f, err = a.Store.Flows.Flow(ctx, contextID(ctx), id)
		return err == nil && f.Status.Ended(), err
	})
	if err != nil {
		return nil, err
	}
	out, err := a.flowOutput(ctx, f)
	if err == nil {
		out.Applied = applied
	}
	return out, err
}

type listFlowsInput struct {
	CallerID string `query:"caller_id" maxLength:"200"`
	Ref      string `query:"ref" pattern:"^[0-9]{1,10}$"`
	Status   string `query:"status" enum:"dispatched,waiting_for_prerequisites,started,finished,error"`
	Limit    int    `query:"limit" minimum:"1" maximum:"500" default:"50"`
	Cursor   string `query:"cursor" doc:"next of the page before, with the same filters."`
}

// refOf reads the ref of a job or a flow in a path or a query.
func refOf(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fault.At("ref", "ref %q: want digits", fault.Clip(text))
	}
	return n, nil
}

// listFlows lists flows, the newest first.
func (a *API) listFlows(ctx context.Context, in *listFlowsInput) (*pageOf[flowView], error) {
	p := Paging{Limit: in.Limit, Cursor: in.Cursor}
	limit, err := p.limit(a)
	if err != nil {
		return nil, err
	}
	filters := []any{"flows", in.CallerID, in.Ref, in.Status}
	f := flows.FlowFilter{Actor: in.CallerID, Status: in.Status, Limit: limit + 1}
	if in.Ref != "" {
		n, err := refOf(in.Ref)
		if err != nil {
			return nil, err
		}
		f.Ref = &n
	}
	if in.Cursor != "" {
		f.After = &flows.JobPlace{}
		if err := p.read(filters, f.After); err != nil {
			return nil, err
		}
	}
	found, err := a.Store.Flows.ListFlows(ctx, contextID(ctx), f)
	if err != nil {
		return nil, err
	}
	out := &pageOf[flowView]{}
	out.Body, out.Link, err = cutTo(ctx, &p, limit, filters, found,
		func(f *flows.Flow) flows.JobPlace { return flows.JobPlace{At: f.CreatedAt, ID: f.ID} },
		plainly(func(f *flows.Flow) flowView { return a.viewFlow(ctx, f, nil) }))
	return out, err
}

func (a *API) getFlowHistory(ctx context.Context, in *OneFlow) (*jobHistoryOutput, error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	steps, err := a.Store.Flows.FlowHistory(ctx, contextID(ctx), id)
	if err != nil {
		return nil, err
	}
	return viewSteps(steps), nil
}

// dagView is the jobs of a flow with what they need.
type dagView struct {
	Nodes []dagNode `json:"nodes"`
	Edges []dagEdge `json:"edges"`
}

type dagNode struct {
	Ref        int64  `json:"ref"`
	ID         string `json:"id"`
	Status     string `json:"status"`
	ScriptType string `json:"script_type"`
}

type dagEdge struct {
	From int64 `json:"from" doc:"the job that is needed"`
	To   int64 `json:"to"`
}

const svgType = "image/svg+xml"

type dagInput struct {
	OneFlow
	Accept string `header:"Accept"`
}

// dagAnswers says in which forms the jobs of a flow are drawn.
func dagAnswers(op *huma.Operation, r huma.Registry) {
	text := &huma.Schema{Type: huma.TypeString}
	op.Responses = map[string]*huma.Response{"200": {
		Description: http.StatusText(http.StatusOK),
		Content: map[string]*huma.MediaType{
			"application/json": {Schema: schemaOf[dagView](r)},
			mermaidType:        {Schema: text},
			svgType:            {Schema: text},
		},
	}}
}

// getFlowDAG answers the jobs of a flow, or a drawing of them to who asks for that first.
func (a *API) getFlowDAG(ctx context.Context, in *dagInput) (*huma.StreamResponse, error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	if _, err := a.Store.Flows.Flow(ctx, contextID(ctx), id); err != nil {
		return nil, err
	}
	jobs, err := a.Store.Flows.JobsOf(ctx, contextID(ctx), id)
	if err != nil {
		return nil, err
	}
	v := dagView{Nodes: []dagNode{}, Edges: []dagEdge{}}
	var nodes []flow.Node
	for _, j := range jobs {
		v.Nodes = append(v.Nodes, dagNode{*j.Ref, j.ID.String(), string(j.Status), j.ScriptType})
		nodes = append(nodes, flow.Node{Ref: *j.Ref, Status: j.Status, ScriptType: j.ScriptType, Needs: j.Dependends})
		for _, need := range j.Dependends {
			v.Edges = append(v.Edges, dagEdge{need, *j.Ref})
		}
	}
	kind, body := "application/json", []byte(nil)
	switch {
	case strings.HasPrefix(in.Accept, mermaidType):
		kind, body = mermaidType, []byte(flow.Mermaid(nodes))
	case strings.HasPrefix(in.Accept, svgType):
		kind, body = svgType, []byte(flow.SVG(nodes))
	default:
		body, _ = json.Marshal(v) // strings and numbers
	}
	return &huma.StreamResponse{Body: func(ctx huma.Context) {
		ctx.SetHeader("Content-Type", kind)
		_, _ = ctx.BodyWriter().Write(body)
	}}, nil
}

type patchFlowInput struct {
	OneFlow
	Conditions
	Body struct {
		Env map[string]string `json:"env_vars" doc:"Instead of what it has."`
	}
}

// patchFlow changes the environment of a flow; it wants If-Match (428).
func (a *API) patchFlow(ctx context.Context, in *patchFlowInput) (*flowOutput, error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	if in.IfMatch == "" {
		return nil, fault.New(fault.Conflict, "precondition_required",
			"PATCH of a flow wants If-Match with the ETag that was last seen")
	}
	version, err := in.version()
	if err != nil {
		return nil, err
	}
	if err := flow.CheckEnv("/env_vars", in.Body.Env); err != nil {
		return nil, err
	}
	if err := a.Store.Flows.PatchFlow(ctx, by(ctx, ""), id, in.Body.Env, version); err != nil {
		return nil, err
	}
	return a.readFlow(ctx, id)
}

func (a *API) readFlow(ctx context.Context, id uuid.UUID) (*flowOutput, error) {
	f, err := a.Store.Flows.Flow(ctx, contextID(ctx), id)
	if err != nil {
		return nil, err
	}
	return a.flowOutput(ctx, f)
}

type flowLeverInput struct {
	OneFlow
	Trial
	Body *reasonBody
}

// startFlow posts the jobs of a flow: 200, also if it was started before.
func (a *API) startFlow(ctx context.Context, in *flowLeverInput) (*leverOutput, error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	return lever(a.Store.Flows.Start(ctx, by(ctx, in.Body.reason()), id))
}

// cancelFlow ends a flow: 200; 202 while a runner stops what runs.
func (a *API) cancelFlow(ctx context.Context, in *flowLeverInput) (*leverOutput, error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	return lever(a.Store.Flows.CancelFlow(ctx, by(ctx, in.Body.reason()), id))
}

type redriveFlowInput struct {
	OneFlow
	Key string `header:"Idempotency-Key" doc:"The same key and body again: the same flow."`
	Trial
	Body *struct {
		Ref    *int64            `json:"ref,omitempty" doc:"Of the new flow."`
		Env    map[string]string `json:"env_vars,omitempty" doc:"Instead of what the flow had."`
		Jobs   []flowJob         `json:"jobs,omitempty" doc:"Instead of those with the same refs."`
		Reason string            `json:"reason,omitempty" maxLength:"1000"`
	}
}

// redriveFlow does a flow again: 201; 200 for a key or a ref that is known with the same content.
func (a *API) redriveFlow(ctx context.Context, in *redriveFlowInput) (*flowOutput, error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	key, err := keyOf(in.Key)
	if err != nil {
		return nil, err
	}
	var ref *int64
	var env map[string]string
	var specs []flow.Spec
	reason := ""
	if in.Body != nil {
		ref, env, reason = in.Body.Ref, in.Body.Env, in.Body.Reason
		if err := flow.CheckEnv("/env_vars", env); err != nil {
			return nil, err
		}
		if specs, err = specsOf(in.Body.Jobs); err != nil {
			return nil, err
		}
	}
	if err := a.wantsKey(ctx, key != "" || ref != nil, "Idempotency-Key or ref"); err != nil {
		return nil, err
	}
	if err := a.wantAll(ctx, specs); err != nil {
		return nil, err
	}
	f, err := a.Store.Flows.Redrive(ctx, by(ctx, reason), id, flows.Redrive{Key: key, Ref: ref, Jobs: specs, Env: env})
	if err != nil {
		return nil, err
	}
	return a.madeFlow(ctx, f)
}

type postFlowJobsInput struct {
	OneFlow
	Body struct {
		Jobs []flowJob `json:"jobs" minItems:"1"`
	}
}

// postFlowJobs adds jobs to a flow: 200.
func (a *API) postFlowJobs(ctx context.Context, in *postFlowJobsInput) (*flowOutput, error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	specs, err := specsOf(in.Body.Jobs)
	if err != nil {
		return nil, err
	}
	if err := a.wantAll(ctx, specs); err != nil {
		return nil, err
	}
	if err := a.Store.Flows.AddJobs(ctx, by(ctx, ""), id, specs); err != nil {
		return nil, err
	}
	return a.readFlow(ctx, id)
}

type deleteFlowJobInput struct {
	OneFlow
	Attempt
	Ref string `path:"ref" pattern:"^[0-9]{1,10}$"`
}

// deleteFlowJob removes a job from a flow: 204.
func (a *API) deleteFlowJob(ctx context.Context, in *deleteFlowJobInput) (*struct{}, error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	ref, err := refOf(in.Ref)
	if err != nil {
		return nil, err
	}
	return nil, a.Store.Flows.RemoveJob(ctx, by(ctx, ""), id, ref)
}

// whyFlow says what a flow waits for.
func (a *API) whyFlow(ctx context.Context, in *OneFlow) (*whyOutput, error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	w, err := a.Store.Flows.WhyFlow(ctx, contextID(ctx), id)
	if err != nil {
		return nil, err
	}
	return &whyOutput{viewWhy(w)}, nil
}
