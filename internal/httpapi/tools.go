package httpapi

import (
	"context"
	"encoding/json"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/events"
)

func (a *API) toolRoutes() {
	const tag = "leader"
	get(a, tag, "/tools", "list-tools", "List tools", a.tools().list)
	get(a, tag, "/tools/{fqn}", "get-tool", "Read one tool, with its schemas and health", a.getTool)
	put(a, tag, "/tools/{fqn}", "put-tool",
		"Register a tool, or replace what it is registered with", a.putTool, 200, 201)
	patch(a, tag, "/tools/{fqn}", "patch-tool", "Change what a tool is registered with", a.patchTool)
	remove(a, tag, "/tools/{fqn}", "delete-tool", "Take a tool out of the registry", a.deleteTool)
	post(a, tag, "/tools/{fqn}/refresh", "refresh-tool", "Read its /meta again", a.refreshTool, 200)
	post(a, tag, "/tools/{fqn}/check", "check-tool", "Ask whether it is ready", a.checkTool, 200)
	post(a, tag, "/tools/{fqn}/invoke", "invoke-tool", "Try it once, and record nothing", a.invokeTool, 200)
}

// toolSettings is what people write of a tool.
type toolSettings struct {
	FQN          toolName        `json:"fqn,omitempty" doc:"If given, the name in the path."`
	Type         string          `json:"type,omitempty" enum:"offchain" doc:"offchain, the only one that is called from here."`
	URL          string          `json:"url" maxLength:"2000" doc:"Below it are /meta, /health and /invoke; where workers may live."`
	Description  string          `json:"description,omitempty" maxLength:"4096" doc:"What its /meta says goes before."`
	Timeout      string          `json:"timeout,omitempty" example:"30s" doc:"Of a call; 30s unless said, 10m at most."`
	MaxAnswer    int             `json:"max_answer,omitempty" minimum:"0" maximum:"10485760" doc:"Bytes of an answer that are read; 1 MiB unless said."`
	Sign         string          `json:"sign,omitempty" enum:"ed25519" doc:"ed25519: each call is signed with the installation's key (RFC 9421)."`
	TTL          string          `json:"ttl,omitempty" example:"5m" doc:"For so long is believed what its /meta said; 5m unless said."`
	CheckEvery   string          `json:"check_every,omitempty" example:"30s" doc:"How often its /health is asked; 30s unless said, 0s for never."`
	InputSchema  json.RawMessage `json:"input_schema,omitempty" doc:"JSON Schema, draft 2020-12. Without both schemas, GET url/meta is asked for them, now and after each ttl."`
	OutputSchema json.RawMessage `json:"output_schema,omitempty" doc:"Likewise, with a top-level oneOf: one of its variants is what the tool answers."`
}

// toolView is a tool as clients read it.
type toolView struct {
	Warned
	FQN          string          `json:"fqn"`
	Type         string          `json:"type" enum:"offchain"`
	URL          string          `json:"url"`
	Description  string          `json:"description"`
	Timeout      string          `json:"timeout"`
	MaxAnswer    int             `json:"max_answer"`
	Sign         *string         `json:"sign" doc:"how calls are signed: ed25519, or null for not at all"`
	PublicKey    *string         `json:"public_key" doc:"of the installation, where calls are signed: verifies them"`
	TTL          string          `json:"ttl"`
	CheckEvery   string          `json:"check_every"`
	Shared       bool            `json:"shared" doc:"it is registered in the context system, for all"`
	Discovered   bool            `json:"discovered" doc:"its schemas are those of its /meta"`
	InputSchema  json.RawMessage `json:"input_schema,omitempty" doc:"not in lists"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty" doc:"not in lists"`
	Health       toolHealth      `json:"health"`
	ReadAt       *time.Time      `json:"read_at" doc:"when its /meta was read last"`
	RefreshAt    *time.Time      `json:"refresh_at" doc:"when it is read next"`
	RefreshError *string         `json:"refresh_error" doc:"why it could not be read; the definition from before holds"`
	Version      int64           `json:"version"`
	CreatedAt    time.Time       `json:"created_at"`
}

// toolHealth is what the probes of a tool have found.
type toolHealth struct {
	State     string     `json:"state" enum:"unknown,ready,failing"`
	Since     *time.Time `json:"since"`
	CheckedAt *time.Time `json:"checked_at"`
	NextAt    *time.Time `json:"next_at"`
	Failures  int        `json:"failures" doc:"probes in a row"`
	LastError *string    `json:"last_error"`
}

func (a *API) viewTool(v *events.Tool) toolView {
	t := toolView{FQN: v.FQN, Type: leader.Offchain, URL: v.URL, Description: v.Description, Timeout: outbox.Duration(v.Timeout).String(), MaxAnswer: v.MaxAnswer, Sign: ptr(v.Sign),
		TTL: outbox.Duration(v.TTL).String(), CheckEvery: outbox.Duration(v.CheckEvery).String(), Shared: v.ContextID == a.Store.Context(pg.System).ID, Discovered: v.Discovered,
		Health: toolHealth{v.Health, utc(v.HealthSince), utc(v.CheckedAt), utc(v.CheckAt), v.Failures, ptr(v.HealthWhy)},
		ReadAt: utc(v.ReadAt), RefreshAt: utc(v.RefreshAt), RefreshError: ptr(v.RefreshWhy), Version: v.Version, CreatedAt: v.CreatedAt.UTC()}
	if v.Sign != "" {
		t.PublicKey = ptr(a.PublicKey)
	}
	if v.Definition != nil {
		t.InputSchema, t.OutputSchema = v.Input.Raw(), v.Output.Raw()
	}
	return t
}

// tools says what is a tool's own among named things; those of system are listed and read in every context.
func (a *API) tools() resource[toolSettings, *events.Tool, toolView] {
	return resource[toolSettings, *events.Tool, toolView]{
		a:        a,
		path:     "/tools",
		page:     pageInContext(a.Store.Events.Tools),
		find:     a.tool,
		view:     simply(a.viewTool),
		head:     func(v *events.Tool) (string, int64) { return v.FQN, v.Version },
		settings: settingsOfTool,
		address:  func(s toolSettings) (string, string) { return "/url", s.URL },
		warnings: func(v *toolView) *[]string { return &v.Warnings },
		made:     a.madeTool,
		store: func(ctx context.Context, by db.By, v *events.Tool, version int64) (bool, error) {
			set := events.ToolSettings{TTL: v.TTL, CheckEvery: v.CheckEvery, Discovered: v.Discovered}
			return a.Store.Events.PutTool(ctx, by, v.Definition, set, version)
		},
	}
}

func settingsOfTool(v *events.Tool) toolSettings {
	s := toolSettings{
		URL:         v.URL,
		Description: v.Description,
		Timeout:     v.Timeout.String(),
		MaxAnswer:   v.MaxAnswer,
		Sign:        v.Sign,
		TTL:         v.TTL.String(),
		CheckEvery:  v.CheckEvery.String(),
	}
	if !v.Discovered {
		s.InputSchema, s.OutputSchema = v.Input.Raw(), v.Output.Raw()
	}
	return s
}

type toolInput struct {
	FQN toolName `path:"fqn"`
}

func (a *API) getTool(ctx context.Context, in *toolInput) (*one[toolView], error) {
	return a.tools().read(ctx, string(in.FQN))
}

// tool finds what a path names, in whatever spelling of its version.
func (a *API) tool(ctx context.Context, called string) (*events.Tool, error) {
	fqn, err := leader.ParseFQN(called)
	if err != nil {
		return nil, fault.New(fault.NotFound, "not_found", "no tool %q: %s", fault.Clip(called), err)
	}
	return a.Store.Events.Tool(ctx, contextID(ctx), fqn.String())
}

type putToolInput struct {
	FQN toolName `path:"fqn"`
	Conditions
	Body toolSettings
}

// putTool registers a tool or replaces its registration: 201, 200; 412. 422 points to the fault in the definition,
// whether the client wrote it or the tool's /meta did.
func (a *API) putTool(ctx context.Context, in *putToolInput) (*one[toolView], error) {
	return a.tools().replace(ctx, string(in.FQN), in.Conditions, in.Body)
}

// madeTool is the tool that settings come to. Without schemas in them its /meta is asked.
func (a *API) madeTool(ctx context.Context, called string, s toolSettings) (*events.Tool, error) {
	return a.toolBy(ctx, called, s, a.Tools.Meta)
}

// toolBy is madeTool with the function that reads the /meta below a URL.
func (a *API) toolBy(ctx context.Context, called string, s toolSettings, meta readMeta) (*events.Tool, error) {
	fqn, err := leader.ParseFQN(called)
	if err != nil {
		return nil, err
	}
	if err := ofPath("fqn", string(s.FQN), called); err != nil {
		return nil, err
	}
	v := &events.Tool{FQN: fqn.String(), URL: s.URL, Discovered: absent(s.InputSchema) && absent(s.OutputSchema)}
	if v.TTL, err = within("/ttl", s.TTL, leader.DefaultTTL, time.Second); err != nil {
		return nil, err
	}
	if v.CheckEvery, err = within("/check_every", s.CheckEvery, 30*time.Second, 0); err != nil {
		return nil, err
	}
	if v.Definition, err = a.define(ctx, fqn, s, v.Discovered, meta); err != nil {
		return nil, err
	}
	d := v.Definition
	v.Description, v.Timeout, v.MaxAnswer, v.Sign = d.Description, d.Timeout, d.MaxAnswer, d.Sign
	return v, nil
}

// readMeta reads the /meta below a URL.
type readMeta func(ctx context.Context, url string) ([]byte, error)

// define makes a definition of what was written, or of what the tool says of itself.
func (a *API) define(
	ctx context.Context, fqn leader.FQN, s toolSettings, discover bool, meta readMeta,
) (*leader.Definition, error) {
	own := leader.Meta{FQN: fqn.String(), Type: s.Type, URL: s.URL, Description: s.Description, Timeout: s.Timeout, MaxAnswer: s.MaxAnswer, Sign: s.Sign}
	if !discover {
		own.InputSchema, own.OutputSchema = given(s.InputSchema), given(s.OutputSchema)
		return own.Definition()
	}
	if err := own.Reachable(); err != nil {
		return nil, err
	}
	if err := a.mayAsk(contextID(ctx)); err != nil {
		return nil, err
	}
	raw, err := meta(ctx, s.URL)
	if err != nil {
		return nil, err
	}
	return leader.Discover(raw, own)
}

func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

func given(raw json.RawMessage) json.RawMessage {
	if absent(raw) {
		return nil
	}
	return raw
}

// within reads a duration of settings: its default where none is written, at least least, at most a day.
func within(at, s string, normal, least time.Duration) (time.Duration, error) {
	if s == "" {
		return normal, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < least || d > 24*time.Hour {
		return 0, fault.At(at, "%s %q: want a duration such as %q, from %s to 24h", at[1:], fault.Clip(s), normal, least)
	}
	return d, nil
}

type patchToolInput struct {
	FQN toolName `path:"fqn"`
	Conditions
	RawBody []byte
	Body    patchBody
}

// patchTool changes what a tool of the context itself is registered with.
func (a *API) patchTool(ctx context.Context, in *patchToolInput) (*one[toolView], error) {
	own := a.tools()
	own.find = a.own
	return own.change(ctx, string(in.FQN), in.Conditions, in.RawBody)
}

// own is a tool that is registered in the context itself: a shared one is changed in system.
func (a *API) own(ctx context.Context, called string) (*events.Tool, error) {
	v, err := a.tool(ctx, called)
	if err == nil && v.ContextID != contextID(ctx) {
		return nil, fault.New(fault.NotFound, "not_found", "tool %q is shared: it is changed in the context %s", fault.Clip(v.FQN), pg.System)
	}
	return v, err
}

type deleteToolInput struct {
	FQN toolName `path:"fqn"`
	Conditions
}

// deleteTool takes a tool out of the registry.
func (a *API) deleteTool(ctx context.Context, in *deleteToolInput) (*struct{}, error) {
	v, err := a.own(ctx, string(in.FQN))
	if err != nil {
		return nil, err
	}
	return nil, a.Store.Events.RemoveTool(ctx, by(ctx, ""), v.FQN)
}
