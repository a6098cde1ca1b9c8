package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/pg/flows"
)

func (a *API) tryRoutes() {
	const tag = "jobs"
	post(a, tag, "/tries/{id}/log", "log-try", "Append to the output of a try", a.logTry, 204)
	post(a, tag, "/tries/{id}/finish", "finish-try", "A script ended well", a.finishTry, 200)
	post(a, tag, "/tries/{id}/fail", "fail-try", "A script did not end well", a.failTry, 200)
}

// OnTry is what a call about a try takes that a runner holds.
type OnTry struct {
	ID    string `path:"id" maxLength:"36"`
	Fence string `header:"Postern-Fence" maxLength:"20" doc:"Required: as the claim gave it."`
}

// fence reads the fence: 428 without one.
func (in *OnTry) fence() (int64, error) {
	if strings.TrimSpace(in.Fence) == "" {
		return 0, fault.New(fault.Conflict, "fence_required",
			"Postern-Fence is missing: send the fence under which the try was claimed")
	}
	n, err := strconv.ParseInt(in.Fence, 10, 64)
	if err != nil || n <= 0 {
		return 0, fault.At("Postern-Fence", "Postern-Fence %q: want the digits that the claim gave",
			fault.Clip(in.Fence))
	}
	return n, nil
}

type logTryInput struct {
	OnTry
	Body struct {
		Lines []struct {
			N      int    `json:"n" minimum:"1" doc:"from 1 within a try and its fence, without gaps"`
			Stream string `json:"stream" enum:"stdout,stderr,runner"`
			Text   string `json:"text"`
		} `json:"lines" maxItems:"1000"`
	}
}

// logTry appends to the output of a try: 204; 409 stale_fence.
func (a *API) logTry(ctx context.Context, in *logTryInput) (*struct{}, error) {
	fence, err := in.fence()
	if err != nil {
		return nil, err
	}
	id, err := uuidOf("try", in.ID)
	if err != nil {
		return nil, err
	}
	lines := []flows.Line{}
	for i, l := range in.Body.Lines {
		switch {
		case len(l.Text) > flow.MaxLine:
			return nil, fault.At(fmt.Sprintf("/lines/%d/text", i),
				"the text has %d bytes: want at most %d, more lines for more", len(l.Text), flow.MaxLine)
		case strings.ContainsRune(l.Text, 0):
			return nil, fault.At(fmt.Sprintf("/lines/%d/text", i), "the text has a NUL byte, which no text has")
		}
		lines = append(lines, flows.Line{N: l.N, Stream: l.Stream, Text: l.Text})
	}
	return nil, a.Store.Flows.AppendLog(ctx, contextID(ctx), id, fence, lines)
}

// usageView is what a script and all its descendants used.
type usageView struct {
	Wall   int64 `json:"wall_ms"`
	CPU    int64 `json:"cpu_ms"`
	RSS    int64 `json:"max_rss_kib"`
	Output int64 `json:"output_bytes"`
}

type finishTryInput struct {
	OnTry
	Body struct {
		Result    json.RawMessage `json:"result" doc:"An object whose values are strings, at most 64 KiB."`
		Isolation string          `json:"isolation,omitempty" maxLength:"100"`
		Usage     *usageView      `json:"usage,omitempty"`
	}
}

type endTryOutput struct {
	Body struct {
		Changed bool `json:"changed" doc:"false: the same was said before"`
	}
}

// finishTry records a result: 200, the same again too; 409 stale_fence, where it is kept as late; 428 without a fence.
func (a *API) finishTry(ctx context.Context, in *finishTryInput) (*endTryOutput, error) {
	said := flows.Said{Isolation: in.Body.Isolation}
	var err error
	if said.Result, err = flow.CheckResult("result", in.Body.Result); err != nil {
		return nil, err
	}
	return a.endTry(ctx, &in.OnTry, said, in.Body.Usage)
}

type failTryInput struct {
	OnTry
	Body struct {
		Code      string          `json:"code" minLength:"1" maxLength:"64" doc:"exit, signal, timed_out, ..."`
		Error     string          `json:"error,omitempty" maxLength:"16384"`
		ExitCode  *int            `json:"exit_code,omitempty"`
		Partial   json.RawMessage `json:"partial,omitempty" doc:"What the script left of a result."`
		Final     bool            `json:"final,omitempty" doc:"A retry would not do better."`
		Isolation string          `json:"isolation,omitempty" maxLength:"100"`
		Usage     *usageView      `json:"usage,omitempty"`
	}
}

// failTry records a failure, as finishTry records a result.
func (a *API) failTry(ctx context.Context, in *failTryInput) (*endTryOutput, error) {
	said := flows.Said{
		Code:      in.Body.Code,
		Error:     strings.ReplaceAll(in.Body.Error, "\x00", "\uFFFD"),
		ExitCode:  in.Body.ExitCode,
		Final:     in.Body.Final,
		Isolation: in.Body.Isolation,
	}
	if len(in.Body.Partial) > 0 {
		var err error
		if said.Result, err = flow.CheckResult("partial", in.Body.Partial); err != nil {
			return nil, err
		}
	}
	return a.endTry(ctx, &in.OnTry, said, in.Body.Usage)
}

func (a *API) endTry(ctx context.Context, at *OnTry, said flows.Said, usage *usageView) (*endTryOutput, error) {
	fence, err := at.fence()
	if err != nil {
		return nil, err
	}
	id, err := uuidOf("try", at.ID)
	if err != nil {
		return nil, err
	}
	if usage != nil {
		if said.Usage, err = json.Marshal(usage); err != nil {
			return nil, err
		}
	}
	out := &endTryOutput{}
	out.Body.Changed, err = a.Store.Flows.End(ctx, contextID(ctx), id, fence, said)
	return out, err
}
