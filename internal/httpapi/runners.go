package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/flows"
)

func (a *API) runnerRoutes() {
	const tag = "jobs"
	runners := a.runners()
	get(a, tag, "/runners", "list-runners", "List runners", runners.list)
	get(a, tag, "/runners/{name}", "get-runner", "Read one runner", runners.get)
	put(a, tag, "/runners/{name}", "put-runner", "Create a runner or replace its settings", runners.put, 200, 201)
	patch(a, tag, "/runners/{name}", "patch-runner", "Change the settings of a runner", runners.patch)
	remove(a, tag, "/runners/{name}", "delete-runner", "Remove a runner: what it holds is offered to others",
		runners.delete)
	post(a, tag, "/runners/{name}/pause", "pause-runner",
		"Hand it no more jobs", turned(a.Store.Flows.PauseRunner, true), 200)
	post(a, tag, "/runners/{name}/resume", "resume-runner",
		"Hand it jobs again", turned(a.Store.Flows.PauseRunner, false), 200)
	post(a, tag, "/runners/{name}/register", "register-runner",
		"A process begins to work as a runner", a.registerRunner, 200)
	post(a, tag, "/runners/{name}/claim", "claim-jobs", "Take jobs", a.claimJobs, 200, 204)
	post(a, tag, "/runners/{name}/renew", "renew-runner",
		"The heartbeat of a runner, for all that it holds", a.renewRunner, 200)
}

// runnerSettings is what people write of a runner.
type runnerSettings struct {
	Name        name     `json:"name,omitempty" doc:"If given, the name in the path."`
	Type        string   `json:"type,omitempty" enum:"v,python,osis,rust" doc:"Its script types, unless said."`
	ScriptTypes []string `json:"script_types,omitempty" maxItems:"100" doc:"Without them what its process can."`
	Local       *bool    `json:"local,omitempty" doc:"true unless said. false: it takes what its topic names alone."`
	Topic       name     `json:"topic,omitempty" doc:"runner and its name unless said."`
	Slots       int      `json:"slots,omitempty" minimum:"1" maximum:"10000" doc:"Jobs at once; 1 unless said."`
	TTL         string   `json:"ttl,omitempty" example:"15s" doc:"How long it may be silent, 3s to 1h."`
	PublicKey   string   `json:"public_key,omitempty" maxLength:"200"`
	Address     string   `json:"address,omitempty" maxLength:"2000"`
}

// runnerView is a runner as clients read it.
type runnerView struct {
	Name        string            `json:"name"`
	Type        string            `json:"type"`
	ScriptTypes []string          `json:"script_types" doc:"what it may execute; empty: whatever it can"`
	Able        []string          `json:"able" doc:"what its process says that it can execute"`
	Missing     map[string]string `json:"missing" doc:"by script type: the interpreter that its process did not find"`
	Local       bool              `json:"local"`
	Topic       string            `json:"topic"`
	Slots       int               `json:"slots"`
	Held        int               `json:"held" doc:"jobs that it holds"`
	State       string            `json:"state" enum:"live,silent,paused,never_seen"`
	TTL         string            `json:"ttl"`
	Instance    string            `json:"instance" doc:"its process"`
	Program     string            `json:"program" doc:"the version of its process"`
	Isolation   string            `json:"isolation" doc:"how its process keeps scripts apart: strict, partial or off"`
	SeenAt      *time.Time        `json:"seen_at"`
	ClaimedAt   *time.Time        `json:"claimed_at" doc:"when it last asked for jobs"`
	PublicKey   string            `json:"public_key"`
	Address     string            `json:"address"`
	Version     int64             `json:"version"`
	CreatedAt   time.Time         `json:"created_at"`
}

func viewRunner(r *flows.Runner) runnerView {
	v := runnerView{
		Name:        r.Name,
		Type:        r.Type,
		ScriptTypes: list(r.ScriptTypes),
		Able:        list(r.Able),
		Missing:     r.Missing,
		Local:       r.Local,
		Topic:       r.Topic,
		Slots:       r.Slots,
		Held:        r.Held,
		State:       "silent",
		TTL:         outbox.Duration(r.TTL).String(),
		Instance:    r.Instance,
		Program:     r.Program,
		Isolation:   r.Isolation,
		SeenAt:      utc(r.SeenAt),
		ClaimedAt:   utc(r.ClaimedAt),
		PublicKey:   r.PublicKey,
		Address:     r.Address,
		Version:     r.Version,
		CreatedAt:   r.CreatedAt.UTC(),
	}
	switch {
	case r.Paused:
		v.State = "paused"
	case r.Epoch == 0:
		v.State = "never_seen"
	case r.Live:
		v.State = "live"
	}
	return v
}

// runners says what is a runner's own among named things.
func (a *API) runners() resource[runnerSettings, *flows.Runner, runnerView] {
	return resource[runnerSettings, *flows.Runner, runnerView]{
		a:    a,
		path: "/runners",
		page: pageInContext(a.Store.Flows.Runners),
		find: inContext(a.Store.Flows.Runner),
		view: simply(viewRunner),
		head: func(r *flows.Runner) (string, int64) { return r.Name, r.Version },
		settings: func(r *flows.Runner) runnerSettings {
			return runnerSettings{
				Type:        r.Type,
				ScriptTypes: r.ScriptTypes,
				Local:       &r.Local,
				Topic:       name(r.Topic),
				Slots:       r.Slots,
				TTL:         outbox.Duration(r.TTL).String(),
				PublicKey:   r.PublicKey,
				Address:     r.Address,
			}
		},
		made: madeRunner,
		store: func(ctx context.Context, by db.By, r *flows.Runner, version int64) (bool, error) {
			return a.Store.Flows.PutRunner(ctx, by, r.RunnerSettings, version)
		},
		remove: a.Store.Flows.RemoveRunner,
	}
}

func madeRunner(_ context.Context, called string, s runnerSettings) (*flows.Runner, error) {
	if err := ofPath("name", string(s.Name), called); err != nil {
		return nil, err
	}
	r := flows.RunnerSettings{Name: called, Type: s.Type, ScriptTypes: s.ScriptTypes, Local: s.Local == nil ||
		*s.Local, Topic: string(s.Topic),
		Slots: s.Slots, PublicKey: s.PublicKey, Address: s.Address}
	for i, t := range r.ScriptTypes {
		if err := flow.CheckScriptType(fmt.Sprintf("/script_types/%d", i), t); err != nil {
			return nil, err
		}
	}
	if s.TTL != "" {
		d, err := time.ParseDuration(s.TTL)
		if err != nil || d < 3*time.Second || d > time.Hour {
			return nil, fault.At("/ttl", "ttl %q: want a duration from 3s to 1h", fault.Clip(s.TTL))
		}
		r.TTL = d
	}
	return &flows.Runner{RunnerSettings: r.WithDefaults()}, nil
}

type registerRunnerInput struct {
	Named
	Body struct {
		Instance    string            `json:"instance" minLength:"1" maxLength:"100" doc:"Names the process."`
		Takeover    bool              `json:"takeover,omitempty" doc:"Take the name from a process that is alive."`
		ScriptTypes []string          `json:"script_types" maxItems:"100" doc:"Whose interpreter is here."`
		Missing     map[string]string `json:"missing,omitempty" doc:"By script type: the missing interpreter."`
		Slots       int               `json:"slots,omitempty" minimum:"0" maximum:"10000" doc:"Scripts at once."`
		Isolation   string            `json:"isolation,omitempty" maxLength:"100" doc:"strict, partial or off"`
		Version     string            `json:"version,omitempty" maxLength:"100" doc:"of the program"`
	}
}

type registerRunnerOutput struct {
	Body struct {
		Epoch int64  `json:"epoch" doc:"to be given with claim and renew"`
		TTL   string `json:"ttl" doc:"without a claim or renew for so long what it holds goes to others"`
	}
}

// registerRunner begins an epoch: 200; 409 runner_live while another process is seen under the name.
func (a *API) registerRunner(ctx context.Context, in *registerRunnerInput) (*registerRunnerOutput, error) {
	for i, t := range in.Body.ScriptTypes {
		if err := flow.CheckScriptType(fmt.Sprintf("/script_types/%d", i), t); err != nil {
			return nil, err
		}
	}
	epoch, ttl, err := a.Store.Flows.Register(ctx, by(ctx, ""), string(in.Name), flows.Registration{
		Instance:  in.Body.Instance,
		Takeover:  in.Body.Takeover,
		Able:      list(in.Body.ScriptTypes),
		Missing:   in.Body.Missing,
		Slots:     max(in.Body.Slots, 1),
		Isolation: in.Body.Isolation,
		Program:   in.Body.Version,
	})
	if err != nil {
		return nil, err
	}
	out := &registerRunnerOutput{}
	out.Body.Epoch, out.Body.TTL = epoch, outbox.Duration(ttl).String()
	return out, nil
}

// tryHold names a try under its fence, as a pair: ["<uuid>", 1764189390123].
type tryHold flows.Hold

// MarshalJSON writes the pair.
func (h tryHold) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.Try, h.Fence}) }

// UnmarshalJSON reads the pair.
func (h *tryHold) UnmarshalJSON(b []byte) error {
	var pair []json.RawMessage
	if err := json.Unmarshal(b, &pair); err != nil || len(pair) != 2 {
		return fmt.Errorf("%.80s is no hold: want [try, fence]", b)
	}
	if err := json.Unmarshal(pair[0], &h.Try); err != nil {
		return fmt.Errorf("the try of a hold: %w", err)
	}
	if err := json.Unmarshal(pair[1], &h.Fence); err != nil {
		return fmt.Errorf("the fence of a hold: %w", err)
	}
	return nil
}

// Schema documents the pair.
func (tryHold) Schema(huma.Registry) *huma.Schema {
	two := 2
	return &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{}, MinItems: &two, MaxItems: &two,
		Description: "[try, fence]"}
}

func holdsOf(list []tryHold) []flows.Hold {
	out := make([]flows.Hold, len(list))
	for i, h := range list {
		out[i] = flows.Hold(h)
	}
	return out
}

func viewHolds(list []flows.Hold) []tryHold {
	out := make([]tryHold, len(list))
	for i, h := range list {
		out[i] = tryHold(h)
	}
	return out
}

type claimJobsInput struct {
	Named
	Wait   string `query:"wait" example:"30s" doc:"How long to wait for a job, at most 60s; wins over Prefer: wait=N."`
	Prefer string `header:"Prefer" doc:"wait=N, in seconds."`
	Body   struct {
		Epoch int64     `json:"epoch" doc:"as registration gave it"`
		Max   int       `json:"max" minimum:"1" maximum:"1000" doc:"how many jobs it has room for"`
		Holds []tryHold `json:"holds" maxItems:"10000" doc:"All that it holds."`
	}
}

// heldJob is a try of a job as a runner needs it.
type heldJob struct {
	Try        string            `json:"try"`
	Fence      int64             `json:"fence"`
	Job        string            `json:"job"`
	Flow       string            `json:"flow,omitempty"`
	Context    string            `json:"context"`
	Token      string            `json:"token" doc:"the same again after a lapse"`
	Attempt    int               `json:"attempt"`
	ScriptType string            `json:"script_type"`
	Script     string            `json:"script"`
	Timeout    int               `json:"timeout" doc:"seconds"`
	Env        map[string]string `json:"env"`
	Inputs     json.RawMessage   `json:"inputs,omitempty" doc:"results of the jobs that it needs, by their refs"`
	Omitted    bool              `json:"inputs_omitted,omitempty" doc:"GET /jobs/{id}/inputs has them"`
	Network    bool              `json:"network"`
}

type claimJobsOutput struct {
	Status  int
	Applied string `header:"Preference-Applied"`
	Body    *claimedJobs
}

type claimedJobs struct {
	Jobs []heldJob `json:"jobs"`
	Lost []tryHold `json:"lost" doc:"in holds, and not its own: it ends these scripts"`
}

// claimJobs hands a runner jobs: 200; 204 when there is none, and nothing to say; 409 stale_epoch, runner_paused.
func (a *API) claimJobs(ctx context.Context, in *claimJobsInput) (*claimJobsOutput, error) {
	length, err := a.lengthOf(in.Wait, in.Prefer)
	if err != nil {
		return nil, err
	}
	out := &claimJobsOutput{Status: http.StatusNoContent}
	left, applied, back := a.beginWait(ctx, length)
	defer back()
	out.Applied = applied
	holds := holdsOf(in.Body.Holds)
	for until := time.Now().Add(left); ; {
		c, err := a.Store.Flows.Claim(ctx, contextID(ctx), string(in.Name), in.Body.Epoch, in.Body.Max, holds)
		if err != nil {
			return nil, err
		}
		left := time.Until(until)
		if !c.Empty() || left <= 0 {
			if !c.Empty() {
				out.Status, out.Body = http.StatusOK, a.viewClaimed(c)
			}
			return out, nil
		}
		woken := time.Now()
		if err := a.Store.Flows.Await(ctx, contextID(ctx), string(in.Name), left, a.news.end); err != nil {
			return nil, err
		}
		select {
		case <-a.news.end: // one more look
			until = time.Time{}
		case <-ctx.Done():
			return out, nil
		default:
			if time.Since(woken) < vainPause/10 { // no offer is for it now
				time.Sleep(vainPause)
			}
		}
		if err := a.stillMay(ctx); err != nil {
			return nil, err
		}
	}
}

func (a *API) viewClaimed(c *flows.Claimed) *claimedJobs {
	v := &claimedJobs{Jobs: []heldJob{}, Lost: viewHolds(c.Lost)}
	for _, t := range c.Taken {
		v.Jobs = append(v.Jobs, viewTaken(t))
	}
	return v
}

func viewTaken(t *flows.Taken) heldJob {
	return heldJob{
		Try:        t.ID.String(),
		Fence:      t.Fence,
		Job:        t.Job.String(),
		Flow:       t.Env["POSTERN_FLOW"],
		Context:    t.Env["POSTERN_CONTEXT"],
		Token:      t.Token,
		Attempt:    t.Attempt,
		ScriptType: t.ScriptType,
		Script:     t.Posted.Script,
		Timeout:    int(t.Posted.Timeout / time.Second),
		Env:        t.Env,
		Inputs:     t.Inputs,
		Omitted:    t.Omitted,
		Network:    t.Posted.Network,
	}
}

type renewRunnerInput struct {
	Named
	Body struct {
		Epoch int64     `json:"epoch"`
		Holds []tryHold `json:"holds" maxItems:"10000" doc:"All that it holds."`
	}
}

type renewRunnerOutput struct {
	Body struct {
		TTL  string    `json:"ttl" doc:"from the begin of this call, by the clock of the runner"`
		Lost []tryHold `json:"lost" doc:"in holds, and not its own: it ends these scripts"`
		Stop []tryHold `json:"stop" doc:"its own, to be stopped"`
	}
}

// renewRunner is the heartbeat of a runner: 200; 409 stale_epoch.
func (a *API) renewRunner(ctx context.Context, in *renewRunnerInput) (*renewRunnerOutput, error) {
	r, err := a.Store.Flows.Renew(ctx, contextID(ctx), string(in.Name), in.Body.Epoch, holdsOf(in.Body.Holds))
	if err != nil {
		return nil, err
	}
	out := &renewRunnerOutput{}
	out.Body.TTL, out.Body.Lost, out.Body.Stop = outbox.Duration(r.TTL).String(), viewHolds(r.Lost), viewHolds(r.Stop)
	return out, nil
}

// uuidOf reads the id of a job or a try in a path. A text that is none names nothing: 404.
func uuidOf(what, text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return uuid.UUID{}, fault.New(fault.NotFound, "not_found", "no %s %q", what, fault.Clip(text))
	}
	return id, nil
}
