package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/remote"
)

type toolActionInput struct {
	FQN toolName `path:"fqn"`
	Trial
	Body *reasonBody
}

// refreshTool reads the /meta of a tool again, and takes over what it says, also where its schemas were written by
// hand. 422 with what is wrong in it; the definition from before holds then, and shows refresh_error.
func (a *API) refreshTool(ctx context.Context, in *toolActionInput) (*one[toolView], error) {
	v, err := a.own(ctx, string(in.FQN))
	if err != nil {
		return nil, err
	}
	if err := a.mayAsk(v.ContextID); err != nil {
		return nil, err
	}
	who := by(ctx, in.Body.reason())
	d, err := remote.Discover(ctx, a.Tools, v.Definition)
	if err != nil {
		if _, err := a.Store.Events.ToolRefreshed(ctx, who, v, nil, err.Error()); err != nil {
			return nil, err
		}
		return nil, err
	}
	if _, err := a.Store.Events.ToolRefreshed(ctx, who, v, d, ""); err != nil {
		return nil, err
	}
	return a.getTool(ctx, &toolInput{in.FQN})
}

// mayAsk refuses to call a tool of a context that is in quarantine.
func (a *API) mayAsk(contextID int32) error {
	if !a.Store.Quarantined(contextID, leader.TypeTool) {
		return nil
	}
	return fault.New(fault.Conflict, "quarantined",
		"it is in quarantine, so that no tool is called: postern quarantine status says why")
}

// checkTool asks a tool whether it is ready, and keeps the answer.
func (a *API) checkTool(ctx context.Context, in *toolInput) (*one[toolView], error) {
	v, err := a.own(ctx, string(in.FQN))
	if err != nil {
		return nil, err
	}
	if err := a.mayAsk(v.ContextID); err != nil {
		return nil, err
	}
	if _, err := a.Store.Events.ToolChecked(ctx, v, a.Tools.Healthy(ctx, v.URL)); err != nil {
		return nil, err
	}
	return a.getTool(ctx, in)
}

type invokeInput struct {
	FQN  toolName `path:"fqn"`
	Body struct {
		Input json.RawMessage `json:"input" doc:"What the tool is given, if it fits its input schema."`
	}
}

type invokeOutput struct {
	Body struct {
		Variant string          `json:"variant" doc:"the one key of what it answered"`
		Output  json.RawMessage `json:"output" doc:"the whole answer"`
		Seconds float64         `json:"seconds" doc:"how long it took"`
	}
}

// invokeTool calls a tool once, and records nothing: to see what it does. 422 schema_mismatch where input or output do
// not fit, with pointers into it; else 422 with class and reason of the tool's failure.
func (a *API) invokeTool(ctx context.Context, in *invokeInput) (*invokeOutput, error) {
	v, err := a.tool(ctx, string(in.FQN))
	if err != nil {
		return nil, err
	}
	if err := a.mayAsk(contextID(ctx)); err != nil {
		return nil, err
	}
	if err := v.ValidateInput(in.Body.Input); err != nil {
		f := fault.As(err)
		for i := range f.Fields {
			f.Fields[i].Pointer = "/input" + f.Fields[i].Pointer
		}
		return nil, f
	}
	scopeOf(ctx).timed.wait(v.Timeout)
	p := a.Tools.Invoke(ctx, remote.Call{BaseURL: v.URL, Timeout: v.Timeout, Sign: v.Definition.Sign != ""},
		"trial."+uuid.NewString(), in.Body.Input, v.MaxAnswer)
	verdict := v.Judge(p)
	if verdict.Class != leader.Successful {
		f := fault.New(fault.Invalid, "invalid", "%s",
			verdict.Message).With("class", verdict.Class).With("reason", verdict.Code)
		if p.Status == http.StatusOK && verdict.Code == "schema_mismatch" {
			f.Code = verdict.Code
		}
		return nil, f
	}
	out := &invokeOutput{}
	out.Body.Variant, out.Body.Output, out.Body.Seconds = verdict.Variant, verdict.Output, p.Elapsed.Seconds()
	return out, nil
}
