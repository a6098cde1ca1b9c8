package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/postern-dev/postern/internal/fault"
)

// coordinate stores messages of domains: 202 all of them are stored, but for those of a domain that is paused or full,
// which it hears again; else none is, and the pointer names one that never will be. Those of a kind that this version
// does not know are listed, and the rest is stored.
func (a *API) coordinate(ctx context.Context, who *knownCaller) (int, any, error) {
	var in struct {
		Messages []json.RawMessage `json:"messages"`
	}
	if err := json.Unmarshal(who.call.RawBody, &in); err != nil {
		return 0, nil, fault.At("", "the call is not understood: %s", fault.Clip(err.Error()))
	}
	unsupported, err := a.Store.Domains.Arrive(ctx, who.context, who.peer.Name, in.Messages)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusAccepted, map[string]any{"taken": len(in.Messages) - len(unsupported),
		"unsupported": list(unsupported)}, nil
}
