package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/pg/flows"
)

func (a *API) jobRoutes() {
	const tag = "jobs"
	post(a, tag, "/jobs", "post-job", "Have a runner execute a script", a.postJob, 201, 200)
	get(a, tag, "/jobs", "list-jobs", "List jobs, the newest first", a.listJobs)
	get(a, tag, "/jobs/{id}", "get-job", "Read one job", a.getJob)
	get(a, tag, "/jobs/{id}/history", "get-job-history", "What happened to a job", a.getJobHistory)
	get(a, tag, "/jobs/{id}/why", "get-job-why", "What a job waits for", a.whyJob)
	get(a, tag, "/jobs/{id}/tries", "get-job-tries", "The tries of a job", a.getJobTries)
	get(a, tag, "/jobs/{id}/inputs", "get-job-inputs", "The results of the jobs that it needs", a.getJobInputs)
	get(a, tag, "/jobs/{id}/logs", "get-job-logs", "The output of its tries", a.getJobLogs)
	post(a, tag, "/jobs/{id}/prerequisites", "meet-prerequisites", "Say that prerequisites of a job are met",
		a.meetPrerequisites, 200)
	post(a, tag, "/jobs/{id}/cancel", "cancel-job", "End a job, or have its runner stop it", a.cancelJob, 200, 202)
	post(a, tag, "/jobs/{id}/replay", "replay-job", "What its runner was given, to execute it elsewhere",
		a.replayJob, 200)
}

// JobInput is what a client writes of a job.
type JobInput struct {
	Ref        *int64            `json:"ref,omitempty" doc:"0 to 4294967295, the caller's own: it names one job."`
	Script     string            `json:"script" doc:"1 byte to 256 KiB."`
	ScriptType string            `json:"script_type" maxLength:"100" example:"python" doc:"Of a dispatcher job.*."`
	Queue      *queueName        `json:"queue,omitempty"`
	Topic      name              `json:"topic,omitempty" doc:"For runners of local: false with it."`
	Timeout    *int64            `json:"timeout,omitempty" doc:"Seconds that each try may take; 600 unless said."`
	Retries    int               `json:"retries,omitempty" doc:"Further tries, 0 to 255; 0 unless said."`
	Env        map[string]string `json:"env_vars,omitempty" doc:"At most 128 KiB; not PATH, HOME, LD_* and POSTERN_*."`
	Network    bool              `json:"network,omitempty" doc:"The script may use the network of its runner."`

	Prerequisites []string `json:"prerequisites,omitempty" doc:"Names that it waits for until they are met."`
	NeedTimeout   *int64   `json:"prerequisite_timeout,omitempty" doc:"Seconds that each may take; 86400 unless said."`

	Target   *jobTarget      `json:"target,omitempty"`
	Envelope json.RawMessage `json:"envelope,omitempty" doc:"With target: DSSE of a message with this job."`
}

// jobTarget says who executes a job.
type jobTarget struct {
	Peer name `json:"peer" doc:"The other installation whose runners execute it."`
}

// spec checks what no schema can.
func (in *JobInput) spec(at string, dependends []int64) (flow.Spec, error) {
	s := flow.Spec{
		Dependends:    dependends,
		Prerequisites: in.Prerequisites,
		Ref:           in.Ref,
		Script:        in.Script,
		ScriptType:    in.ScriptType,
		Retries:       in.Retries,
		Env:           in.Env,
		Network:       in.Network,
		Topic:         string(in.Topic),
	}
	if in.Queue != nil {
		s.Queue = string(*in.Queue)
	}
	switch {
	case in.Target != nil && in.Target.Peer == "":
		return s, fault.At(at+"/target/peer", "target.peer is missing: want the name of a peer of this context")
	case in.Target != nil:
		s.Peer, s.Envelope = string(in.Target.Peer), bytes.Clone(in.Envelope)
	case len(in.Envelope) > 0:
		return s, fault.At(at+"/envelope", "envelope: only a job for a peer has one: name the peer in target.peer")
	}
	var err error
	if s.Timeout, err = flow.Seconds(at+"/timeout", in.Timeout, flow.DefaultTimeout); err != nil {
		return s, err
	}
	s.NeedTimeout, err = flow.Seconds(at+"/prerequisite_timeout", in.NeedTimeout, flow.DefaultNeedTimeout)
	if err != nil {
		return s, err
	}
	if err := flow.CheckScriptType(at+"/script_type", in.ScriptType); err != nil {
		return s, err
	}
	return s, s.Validate(at)
}

// jobView is a job as clients read it.
type jobView struct {
	ID          string            `json:"id"`
	CallerID    string            `json:"caller_id" doc:"the actor that posted it"`
	Ref         *int64            `json:"ref"`
	Script      string            `json:"script,omitempty" doc:"not in lists"`
	ScriptType  string            `json:"script_type"`
	Queue       *string           `json:"queue"`
	Topic       *string           `json:"topic" doc:"null: runners of its script type take it"`
	Timeout     int64             `json:"timeout" doc:"seconds"`
	Retries     int               `json:"retries"`
	Env         map[string]string `json:"env_vars" doc:"for readers without the values"`
	Network     bool              `json:"network"`
	Status      string            `json:"status" enum:"dispatched,waiting_for_prerequisites,started,finished,error"`
	Stopping    bool              `json:"stopping,omitempty" doc:"its runner is told to stop it"`
	Flow        *string           `json:"flow" doc:"the id of its flow"`
	UID         string            `json:"uid,omitempty" doc:"of a job that came as a transaction: that one's"`
	Dependends  []int64           `json:"dependends" doc:"refs of the jobs that it needs"`
	Needs       []string          `json:"needs" doc:"their ids"`
	Named       []needView        `json:"prerequisites"`
	Result      json.RawMessage   `json:"result" doc:"null before its end; of error, what its last try left"`
	ExitCode    *int              `json:"exit_code"`
	Error       *jobError         `json:"error"`
	Tries       int               `json:"tries"`
	Runner      *string           `json:"runner" doc:"that holds it, or held it last"`
	Transaction *string           `json:"transaction" doc:"the id of the transaction that carries it"`
	Target      *jobTarget        `json:"target" doc:"null: runners of this installation execute it"`
	Message     *string           `json:"message" doc:"with target: the id of the message that carries it"`
	CreatedAt   time.Time         `json:"created_at"`
	StartedAt   *time.Time        `json:"started_at"`
	EndedAt     *time.Time        `json:"ended_at"`
	UpdatedAt   time.Time         `json:"updated_at"`
}

// needView is a prerequisite as clients read it.
type needView struct {
	Name     string     `json:"name"`
	Deadline *time.Time `json:"deadline" doc:"null: its job is not posted yet"`
	MetAt    *time.Time `json:"met_at"`
	MetBy    string     `json:"met_by"`
	EndedAt  *time.Time `json:"ended_at" doc:"when it was too late, or its job had ended"`
}

type jobError struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Cause   *string `json:"cause,omitempty" doc:"the job whose failure this one suffers from"`
}

// masked stands for the value of a variable that a reader does not see.
const masked = "***"

func (a *API) viewJob(ctx context.Context, j *flows.Job, whole bool) jobView {
	v := jobView{
		ID:          j.ID.String(),
		CallerID:    j.Actor,
		Ref:         j.Ref,
		ScriptType:  j.ScriptType,
		Queue:       ptr(j.Queue),
		Topic:       ptr(j.Topic),
		Timeout:     int64(j.Timeout / time.Second),
		Retries:     j.Retries,
		Env:         a.shownEnv(ctx, j.Env),
		Network:     j.Network,
		Status:      string(j.Status),
		Stopping:    j.StopAt != nil && !j.Status.Ended(),
		UID:         j.UID,
		Dependends:  list(j.Dependends),
		Needs:       []string{},
		Named:       []needView{},
		Error:       viewJobError(j.Code, j.Error, j.Cause),
		Result:      j.Result,
		ExitCode:    j.ExitCode,
		Tries:       j.Tries,
		Runner:      ptr(j.Runner),
		Transaction: ptr(j.Tx),
		CreatedAt:   j.CreatedAt.UTC(),
		StartedAt:   utc(j.StartedAt),
		EndedAt:     utc(j.EndedAt),
		UpdatedAt:   j.UpdatedAt.UTC(),
	}
	if v.Result == nil {
		v.Result = json.RawMessage("null")
	}
	if j.Flow != nil {
		v.Flow = ptr(j.Flow.String())
	}
	if j.Peer != "" {
		v.Target = &jobTarget{name(j.Peer)}
	}
	if j.Carried != nil {
		v.Message = ptr(j.Carried.String())
	}
	for _, id := range j.Needs {
		v.Needs = append(v.Needs, id.String())
	}
	for _, n := range j.Named {
		v.Named = append(v.Named, needView{n.Name, utc(n.Deadline), utc(n.MetAt), n.MetBy, utc(n.EndedAt)})
	}
	if whole {
		v.Script = j.Script
	}
	return v
}

func viewJobError(code, text string, cause *uuid.UUID) *jobError {
	if code == "" && text == "" {
		return nil
	}
	e := &jobError{Code: code, Message: text}
	if cause != nil {
		e.Cause = ptr(cause.String())
	}
	return e
}

// shownEnv is an environment as it is shown: to readers without the values, which may be secrets.
func (a *API) shownEnv(ctx context.Context, env map[string]string) map[string]string {
	s := scopeOf(ctx)
	reads := s.who.in(s.Context, a.system()) < executors
	shown := map[string]string{}
	for name, value := range env {
		if reads {
			value = masked
		}
		shown[name] = value
	}
	return shown
}

type postJobInput struct {
	Key  string `header:"Idempotency-Key" doc:"The same key and body again: the same job."`
	Body JobInput
}

type jobOutput struct {
	Status   int
	Location string `header:"Location"`
	ETag     string `header:"ETag"`
	Replay   string `header:"Idempotent-Replay" doc:"true when the key or the ref was known already"`
	Applied  string `header:"Preference-Applied"`
	Body     jobView
}

// postJob stores a job: 201; 200 for a key or a ref that is known with the same content, 409 with another.
func (a *API) postJob(ctx context.Context, in *postJobInput) (*jobOutput, error) {
	spec, err := in.Body.spec("", nil)
	if err != nil {
		return nil, err
	}
	key, err := keyOf(in.Key)
	if err != nil {
		return nil, err
	}
	if err := a.wantsKey(ctx, key != "" || spec.Ref != nil, "Idempotency-Key or ref"); err != nil {
		return nil, err
	}
	if err := a.wantsDeclared(ctx, "/queue", spec.Queue); err != nil {
		return nil, err
	}
	if err := a.wantSigned(ctx, "", spec); err != nil {
		return nil, err
	}
	j, err := a.Store.Flows.PostJob(ctx, by(ctx, ""), spec, key)
	if err != nil {
		return nil, err
	}
	out := &jobOutput{Status: http.StatusCreated, Location: "/jobs/" + j.ID.String(), ETag: etag(j.Tag()),
		Body: a.viewJob(ctx, j, true)}
	if j.Replay {
		out.Status, out.Replay = http.StatusOK, "true"
	}
	return out, nil
}

// wantSigned refuses a job for another installation that its caller has not signed as it is written. at is where it
// stands in the request.
func (a *API) wantSigned(ctx context.Context, at string, spec flow.Spec) error {
	if spec.Peer == "" {
		return nil
	}
	return a.Store.Messages.CheckJob(ctx, by(ctx, ""), at, spec)
}

type getJobInput struct {
	ID     string `path:"id" maxLength:"36"`
	Wait   string `query:"wait" example:"30s" doc:"How long to wait for its end, at most 60s."`
	Prefer string `header:"Prefer" doc:"wait=N, in seconds."`
}

// jobLook is how often a job is looked at for who waits for its end.
const jobLook = 200 * time.Millisecond

// getJob answers a job, at its end or when the time to wait is over.
func (a *API) getJob(ctx context.Context, in *getJobInput) (*jobOutput, error) {
	id, err := uuidOf("job", in.ID)
	if err != nil {
		return nil, err
	}
	var j *flows.Job
	applied, err := a.untilEnd(ctx, in.Wait, in.Prefer, func() (bool, error) {
		j, err = a.Store.Flows.Job(ctx, contextID(ctx), id)
		return err == nil && j.Status.Ended(), err
	})
	if err != nil {
		return nil, err
	}
	return &jobOutput{Status: http.StatusOK, ETag: etag(j.Tag()), Applied: applied, Body: a.viewJob(ctx, j, true)}, nil
}

// untilEnd looks until look says that there is an end, or the time to wait is over.
func (a *API) untilEnd(ctx context.Context, wait, prefer string, look func() (bool, error)) (applied string,
	err error) {
	length, err := a.lengthOf(wait, prefer)
	if err != nil {
		return "", err
	}
	left, applied, back := a.beginWait(ctx, length)
	defer back()
	for until := time.Now().Add(left); ; {
		ended, err := look()
		if err != nil || ended || !time.Now().Before(until) {
			return applied, err
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-a.news.end: // one more look
			until = time.Time{}
		case <-time.After(jobLook):
		}
		if err := a.stillMay(ctx); err != nil {
			return "", err
		}
	}
}

type listJobsInput struct {
	CallerID   string `query:"caller_id" maxLength:"200"`
	Ref        string `query:"ref" pattern:"^[0-9]{1,10}$"`
	Status     string `query:"status" enum:"dispatched,waiting_for_prerequisites,started,finished,error"`
	ScriptType string `query:"script_type" maxLength:"100"`
	Runner     string `query:"runner" maxLength:"200" doc:"That had a try of it."`
	Flow       string `query:"flow" maxLength:"36" doc:"The id of its flow."`
	Tx         string `query:"tx" maxLength:"36" doc:"The id of the transaction that carries it."`
	Limit      int    `query:"limit" minimum:"1" maximum:"500" default:"50"`
	Cursor     string `query:"cursor" doc:"next of the page before, with the same filters."`
}

// listJobs lists jobs, the newest first.
func (a *API) listJobs(ctx context.Context, in *listJobsInput) (*pageOf[jobView], error) {
	p := Paging{Limit: in.Limit, Cursor: in.Cursor}
	limit, err := p.limit(a)
	if err != nil {
		return nil, err
	}
	filters := []any{"jobs", in.CallerID, in.Ref, in.Status, in.ScriptType, in.Runner, in.Flow, in.Tx}
	f := flows.JobFilter{
		Actor:      in.CallerID,
		ScriptType: in.ScriptType,
		Runner:     in.Runner,
		Status:     in.Status,
		Limit:      limit + 1,
	}
	if in.Flow != "" {
		id, err := uuidOf("flow", in.Flow)
		if err != nil {
			return nil, err
		}
		f.Flow = &id
	}
	if in.Tx != "" {
		id, err := uuidOf("transaction", in.Tx)
		if err != nil {
			return nil, err
		}
		f.Tx = &id
	}
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
	found, further, err := a.Store.Flows.ListJobs(ctx, contextID(ctx), f)
	if err != nil {
		return nil, err
	}
	out := &pageOf[jobView]{}
	out.Body, out.Link, err = goesOn(ctx, &p, limit, filters, found, further,
		func(j *flows.Job) flows.JobPlace { return flows.JobPlace{At: j.CreatedAt, ID: j.ID} },
		plainly(func(j *flows.Job) jobView { return a.viewJob(ctx, j, false) }))
	return out, err
}

// OneJob is the path of a job.
type OneJob struct {
	ID string `path:"id" maxLength:"36"`
}

func (in *OneJob) id() (uuid.UUID, error) { return uuidOf("job", in.ID) }
