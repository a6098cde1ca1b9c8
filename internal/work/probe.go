package work

import (
	"context"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/events"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/safe"
)

// How a node asks after tools.
const (
	probesAtOnce = 16
	probeEvery   = time.Second
)

// probes is the loop that asks the tools whose time has come whether they are ready, and what they are.
func (e *Events) probes() Loop {
	return Loop{
		Name:  "tools",
		Does:  "ask after tools",
		Await: e.any(events.Tools),
		Every: probeEvery,
		Once: func(ctx context.Context) (Turn, error) {
			n, err := e.ProbeOnce(ctx)
			turn := Turn{Did: n}
			if n == probesAtOnce {
				turn.Next = AtOnce
			}
			return turn, err
		},
	}
}

// ProbeOnce asks the tools that are due, several at a time, and returns how many those were.
func (e *Events) ProbeOnce(ctx context.Context) (int, error) {
	due, err := e.Store.Events.ToolsDue(ctx, probesAtOnce)
	if err != nil {
		return 0, err
	}
	errs := make([]error, len(due))
	var all sync.WaitGroup
	for i, v := range due {
		all.Go(safe.Func("probe", func() { errs[i] = e.probe(ctx, v) }))
	}
	all.Wait()
	for _, one := range errs {
		if one != nil {
			err = one
		}
	}
	return len(due), err
}

// probe asks one tool. A /meta that is broken, or names another version, leaves the definition as it is, and shows why.
func (e *Events) probe(ctx context.Context, v *events.DueTool) error {
	if e.Store.Quarantined(v.ContextID, "") {
		return nil
	}
	if v.Check {
		why := e.Tools.Healthy(ctx, v.URL)
		if ctx.Err() != nil { // we were stopped; that says nothing about the tool
			return nil
		}
		changed, err := e.Store.Events.ToolChecked(ctx, v.Tool, why)
		if err != nil {
			return err
		}
		if changed && why != "" {
			e.Log.Warn("a tool is not ready", "tool", v.FQN, "error", why)
		} else if changed {
			e.Log.Info("a tool is ready", "tool", v.FQN)
		}
	}
	if !v.Refresh {
		return nil
	}
	full, err := e.Store.Events.Tool(ctx, v.ContextID, v.FQN)
	if fault.KindOf(err) == fault.NotFound {
		return nil
	}
	if err != nil || full.ID != v.ID || full.Version != v.Version { // changed meanwhile: it has its own time
		return err
	}
	d, trouble := remote.Discover(ctx, e.Tools, full.Definition)
	switch {
	case ctx.Err() != nil:
		return nil
	case trouble != nil:
		if v.RefreshWhy == "" {
			e.Log.Warn("the definition of a tool cannot be read again", "tool", v.FQN, "error", trouble)
		}
		_, err = e.Store.Events.ToolRefreshed(ctx,
			db.By{Context: v.ContextID, Via: "refresh"}, full, nil, trouble.Error())
		return err
	}
	changed, err := e.Store.Events.ToolRefreshed(ctx,
		db.By{Context: v.ContextID, Via: "refresh", Reason: "its /meta has changed"}, full, d, "")
	if changed {
		e.Log.Info("the definition of a tool has changed", "tool", v.FQN)
	}
	return err
}
