package httpapi

import (
	"context"
	"time"

	"github.com/postern-dev/postern/internal/fault"
)

// clockBody moves the clock. Heights of domains are not in it before there are domains.
type clockBody struct {
	Set     *time.Time `json:"set,omitempty" doc:"the time that it is from now on; never one that is over"`
	Advance string     `json:"advance,omitempty" example:"90s" doc:"how far to move ahead: set or advance, one of them"`
}

type clockInput struct{ Body clockBody }

type clockOutput struct {
	Body struct {
		Now time.Time `json:"now" doc:"by which this process decides; it goes on from here"`
	}
}

// moveClock sets or advances the time by which this process decides, and runs what has become due (S0.3).
// 422: neither or both, a time that is over, more than a century.
func (a *API) moveClock(ctx context.Context, in *clockInput) (out *clockOutput, err error) {
	out = &clockOutput{}
	switch b := in.Body; {
	case b.Set != nil && b.Advance != "":
		return nil, fault.At("/advance", "set and advance are both given: send one of them")
	case b.Set != nil:
		out.Body.Now, err = a.Store.SetClock(ctx, *b.Set)
	case b.Advance != "":
		d, e := time.ParseDuration(b.Advance)
		if e != nil {
			return nil, fault.At("/advance", "advance %q: want a duration such as \"90s\" or \"24h\"", fault.Clip(b.Advance))
		}
		out.Body.Now, err = a.Store.AdvanceClock(ctx, d)
	default:
		return nil, fault.At("/set", "neither set nor advance is given: want {\"set\": \"2026-11-20T14:00:00Z\"} or {\"advance\": \"90s\"}")
	}
	if err != nil {
		return nil, err
	}
	a.Log.Warn("the clock was moved", "now", out.Body.Now)
	return out, a.DebugClock(ctx)
}
