package work

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Check is one thing that readiness depends on.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
}

// Checks says whether the node can dispatch: its leases hold, River runs, it is not stopping, and it gets on.
func (e *Engine) Checks(ctx context.Context) []Check {
	lease := Check{Name: "lease", OK: e.node.Load() != nil && e.trusted()}
	if !lease.OK {
		lease.Detail = fmt.Sprintf("the last heartbeat that reached the database is older than the lease TTL of %s allows", e.TTL)
	}
	stopping := Check{Name: "dispatching", OK: !e.stopping.Load()}
	if !stopping.OK {
		stopping.Detail = "stopping: nothing more is claimed"
	}
	progress := Check{Name: "progress", OK: time.Since(time.UnixMilli(e.progress.Load())) < 30*time.Second ||
		e.room().Total <= 0}
	if !progress.OK {
		progress.Detail = "no look at the ready queues has succeeded for 30 s"
	}
	return []Check{lease, e.checkJobs(ctx), stopping, progress, e.left.check()}
}

// jobsWithin is how long a job may wait that any process may do, until readiness drops.
const jobsWithin = time.Minute

// checkJobs says whether River does the jobs that any process may do. A job that is due and that no process begins is
// the sign that it does not, also where River has not said why. Jobs that only make others claim count as little as
// they do elsewhere: looks find the same work.
func (e *Engine) checkJobs(ctx context.Context) Check {
	c := Check{Name: "jobs", OK: e.housekeeping.Load()}
	if !c.OK {
		c.Detail = "River has not started: nothing is swept"
		return c
	}
	var kind string
	var seconds float64
	err := e.Store.Pool().QueryRow(ctx, `
		SELECT j.kind, extract(epoch FROM clock_timestamp() - d.since)::float8
		FROM river.river_job j
		CROSS JOIN LATERAL (SELECT greatest(j.scheduled_at, j.created_at) AS since) d
		WHERE j.state IN ('available', 'retryable', 'scheduled')
			AND j.queue = $1
			AND j.kind <> $2
			AND d.since < clock_timestamp() - $3::interval
		ORDER BY d.since
		LIMIT 1`, riverQueue, dispatchKind, jobsWithin).Scan(&kind, &seconds)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
	case err != nil:
		c.OK, c.Detail = false, fmt.Sprintf("unknown: the jobs cannot be read: %v", err)
	default:
		c.OK, c.Detail = false, fmt.Sprintf("a job %s has been due for %.0f s, and no process begins it", kind, seconds)
	}
	return c
}
