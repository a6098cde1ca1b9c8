package httpapi

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/postern-dev/postern/internal/fault"
)

func (a *API) clockRoutes() {
	const tag = "service"
	if a.DebugClock != nil {
		post(a, tag, "/debug/clock", "move-clock",
			"Set or advance the time (in dev, or with --debug-clock)", a.moveClock, 200)
	}
}

// clockBody moves the clock, and the block heights of domains.
type clockBody struct {
	Set     *time.Time `json:"set,omitempty" doc:"the time that it is from now on; never one that is over"`
	Advance string     `json:"advance,omitempty" example:"90s" doc:"how far to move ahead: set or advance, one of them"`
	Heights heights    `json:"heights,omitempty" doc:"of the domains of processors, by their names; none of them falls"`
}

// heights are block heights by the name of their domain.
type heights map[string]height

type clockInput struct{ Body clockBody }

type clockOutput struct {
	Body struct {
		Now time.Time `json:"now" doc:"by which this process decides; it goes on from here"`
	}
}

// moveClock sets or advances the time by which this process decides, and runs what has become due (S0.3).
// 422: nothing or both, a time or a height that is over, more than a century. 404: no processor of that name.
func (a *API) moveClock(ctx context.Context, in *clockInput) (out *clockOutput, err error) {
	out = &clockOutput{}
	for _, domain := range slices.Sorted(maps.Keys(in.Body.Heights)) {
		if err := a.Store.Batches.SetHeight(ctx, by(ctx, ""), domain, int64(in.Body.Heights[domain])); err != nil {
			return nil, err
		}
	}
	switch b := in.Body; {
	case b.Set != nil && b.Advance != "":
		return nil, fault.At("/advance", "set and advance are both given: send one of them")
	case b.Set != nil:
		out.Body.Now, err = a.Store.SetClock(ctx, *b.Set)
	case b.Advance != "":
		d, e := time.ParseDuration(b.Advance)
		if e != nil {
			return nil, fault.At("/advance", "advance %q: want a duration such as \"90s\" or \"24h\"",
				fault.Clip(b.Advance))
		}
		out.Body.Now, err = a.Store.AdvanceClock(ctx, d)
	case len(b.Heights) > 0:
		out.Body.Now, err = a.now(ctx)
	default:
		return nil, fault.At("/set",
			"neither set nor advance is given: want {\"set\": \"2026-11-20T14:00:00Z\"} or {\"advance\": \"90s\"}")
	}
	if err != nil {
		return nil, err
	}
	scopeOf(ctx).timed.wait(10 * time.Minute) // all that is due by then
	a.Log.Warn("the clock was moved", "now", out.Body.Now)
	return out, a.DebugClock(ctx)
}
