package httpapi

import (
	"net/http"

	"github.com/postern-dev/postern/internal/pg"
)

// reasonBody is the optional body of every action.
type reasonBody struct {
	Reason string `json:"reason,omitempty" maxLength:"1000" doc:"Kept in the audit row."`
}

func (b *reasonBody) reason() string {
	if b == nil {
		return ""
	}
	return b.Reason
}

// leverOutput is the answer to an action: done (200), or pending (202): At says when it takes effect.
type leverOutput struct {
	Status int
	Body   struct {
		Result  string `json:"result" enum:"done,pending"`
		Changed bool   `json:"changed" doc:"false if it was so already"`
		At      string `json:"at,omitempty" doc:"pending: when it takes effect"`
		ID      string `json:"id,omitempty" doc:"moved to another queue: its id there"`
		State   string `json:"state,omitempty" doc:"then, of a flow, job, message or delivery"`
		DryRun  bool   `json:"dry_run,omitempty" doc:"true: this is what it would do"`
	}
}

func lever(r pg.LeverResult, err error) (*leverOutput, error) {
	if err != nil {
		return nil, err
	}
	out := &leverOutput{Status: http.StatusOK}
	out.Body.Result, out.Body.Changed, out.Body.State = "done", r.Changed, r.State
	if r.Moved != nil {
		out.Body.ID = r.Moved.String()
	}
	if r.Pending {
		out.Status, out.Body.Result, out.Body.At = http.StatusAccepted, "pending", r.At
	}
	return out, nil
}
