package httpapi

import (
	"context"

	"github.com/postern-dev/postern/internal/pg/db"
)

// Purging is what every purge takes: how many at most, and why.
type Purging struct {
	Trial
	Body *struct {
		Max    int    `json:"max,omitempty" minimum:"1" maximum:"10000" default:"10000" doc:"No more than these, oldest first."`
		Reason string `json:"reason,omitempty" maxLength:"1000"`
	}
}

type purgeOutput struct {
	Body struct {
		Result    string `json:"result" enum:"done"`
		Changed   bool   `json:"changed"`
		Cancelled int    `json:"cancelled"`
		More      bool   `json:"more" doc:"some wait still: max was reached"`
		DryRun    bool   `json:"dry_run,omitempty" doc:"true: this is what it would do"`
	}
}

// purge cancels what waits of an object.
func (p *Purging) purge(ctx context.Context, object string,
	pull func(context.Context, db.By, string, int) (int, bool, error)) (*purgeOutput, error) {
	most, reason := bulkMost, ""
	if p.Body != nil {
		or(&p.Body.Max, bulkMost)
		most, reason = p.Body.Max, p.Body.Reason
	}
	n, more, err := pull(ctx, by(ctx, reason), object, most)
	if err != nil {
		return nil, err
	}
	out := &purgeOutput{}
	out.Body.Result, out.Body.Changed, out.Body.Cancelled, out.Body.More, out.Body.DryRun = "done", n > 0, n, more,
		p.DryRun
	return out, nil
}
