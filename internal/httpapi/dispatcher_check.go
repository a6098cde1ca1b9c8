package httpapi

import (
	"context"
	"strings"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remote"
)

type checkInput struct {
	Type name `path:"type"`
}

// probeView is what came of one question to a worker.
type probeView struct {
	Check string `json:"check"`
	State string `json:"state" enum:"ok,absent,bad" doc:"absent: it is optional, and not there"`
	Found string `json:"found"`
}

type checkOutput struct {
	Body struct {
		OK        bool        `json:"ok" doc:"nothing is bad"`
		WorkerURL string      `json:"worker_url"`
		Checks    []probeView `json:"checks"`
	}
}

// checkDispatcher asks the worker of a type for its health and for what it may offer beside dispatch. Nothing is
// executed, and nothing is kept; postern verify-worker tries the whole contract, with transactions.
func (a *API) checkDispatcher(ctx context.Context, in *checkInput) (*checkOutput, error) {
	d, err := a.Store.Dispatcher(ctx, contextID(ctx), string(in.Type))
	if err != nil {
		return nil, err
	}
	if a.Store.Quarantined(contextID(ctx), d.Type) {
		return nil, fault.New(fault.Conflict, "quarantined",
			"type %s is in quarantine, so that its worker is not called: postern quarantine status says why", d.Type)
	}
	out := &checkOutput{}
	out.Body.OK, out.Body.WorkerURL = true, d.WorkerURL
	probes := []remote.Probe{{Check: "health", State: "ok", Found: "it is built in"}}
	if !strings.HasPrefix(d.WorkerURL, "noop:") && !strings.HasPrefix(d.WorkerURL, "run:") &&
		d.WorkerURL != outbox.PeerURL {
		probes = a.Tools.Probes(remote.Signed(ctx, d.Secret), d.WorkerURL, d.Type)
	}
	for _, p := range probes {
		if p.Check == "status" && d.Mute() {
			p.State, p.Found = "absent", outbox.Unasked().Message
		}
		out.Body.OK = out.Body.OK && p.State != "bad"
		out.Body.Checks = append(out.Body.Checks, probeView(p))
	}
	return out, nil
}
