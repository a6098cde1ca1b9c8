package httpapi

import (
	"context"
	"net/http"
	"time"
)

func (a *API) healthRoutes() {
	const tag = "service"
	get(a, tag, "/limits", "get-limits", "The limits in force", a.limits)
	get(a, tag, "/livez", "get-livez", "Whether the process lives", a.livez)
	get(a, tag, "/readyz", "get-readyz", "Whether it should get requests, and why not", a.readyz)
}

// Check is one condition of readiness.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
}

type livezOutput struct {
	Body struct {
		Status  string `json:"status"`
		Version string `json:"version"`
	}
}

// livez answers as long as the process can.
func (a *API) livez(context.Context, *struct{}) (*livezOutput, error) {
	out := &livezOutput{}
	out.Body.Status, out.Body.Version = "live", a.Version
	return out, nil
}

type readyzOutput struct {
	Status int
	Body   struct {
		Ready  bool    `json:"ready"`
		Checks []Check `json:"checks"`
	}
}

// readyz says whether this process should get requests, and lists what that depends on.
func (a *API) readyz(ctx context.Context, _ *struct{}) (*readyzOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	out := &readyzOutput{Status: http.StatusOK}
	if a.Ready != nil {
		out.Body.Checks = a.Ready(ctx)
	} else {
		for _, r := range a.Store.Ready(ctx) {
			out.Body.Checks = append(out.Body.Checks, Check{Name: r.Name, OK: r.Detail == "", Detail: r.Detail})
		}
	}
	serving := Check{Name: "serving", OK: !a.leaving.Load()}
	if !serving.OK {
		serving.Detail = "shutting down"
	}
	out.Body.Checks = append(out.Body.Checks, serving)
	out.Body.Ready = true
	for _, c := range out.Body.Checks {
		out.Body.Ready = out.Body.Ready && c.OK
	}
	if !out.Body.Ready {
		out.Status = http.StatusServiceUnavailable
	}
	return out, nil
}

type limitsOutput struct{ Body Limits }

// limits shows those in force.
func (a *API) limits(context.Context, *struct{}) (*limitsOutput, error) {
	return &limitsOutput{a.Limits}, nil
}
