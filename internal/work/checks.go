package work

import (
	"context"
	"fmt"
	"time"
)

// Check is one thing that readiness depends on.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
}

// Checks says whether the node can dispatch: its leases hold, River runs, it is not stopping, and it gets on.
func (e *Engine) Checks(context.Context) []Check {
	lease := Check{Name: "lease", OK: e.node.Load() != nil && e.trusted()}
	if !lease.OK {
		lease.Detail = fmt.Sprintf("the last heartbeat that reached the database is older than the lease TTL of %s allows", e.TTL)
	}
	stopping := Check{Name: "dispatching", OK: !e.stopping.Load()}
	if !stopping.OK {
		stopping.Detail = "stopping: nothing more is claimed"
	}
	progress := Check{Name: "progress", OK: time.Since(time.UnixMilli(e.progress.Load())) < 30*time.Second || e.room().Total <= 0}
	if !progress.OK {
		progress.Detail = "no look at the ready queues has succeeded for 30 s"
	}
	jobs := Check{Name: "jobs", OK: e.housekeeping.Load()}
	if !jobs.OK {
		jobs.Detail = "River has not started: nobody sweeps"
	}
	return []Check{lease, jobs, stopping, progress}
}
