package work

import (
	"context"
	"log/slog"
	"time"

	"github.com/postern-dev/postern/internal/backoff"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/safe"
)

// How often a process looks for what postern.submit has staged. A look that finds nothing is one statement
// of some 30 µs, but it wakes two processes, which was the half of what an idle installation cost: so the next
// look waits for a thousandth of the time for which nothing was staged, and a process spends no more than a tenth of
// its time on looking. There is no notification: a NOTIFY makes the commits of all applications wait for one another,
// and none can then be prepared (XA).
const (
	drainEvery          = 15 * time.Millisecond
	drainEveryQuiet     = 50 * time.Millisecond
	drainEveryElsewhere = 100 * time.Millisecond
	drainQuietShare     = 1000
)

// drainWait is how long a process waits after a look that took so long and found nothing, when nothing was staged for
// that long: no longer than drainEveryQuiet for the quiet's sake.
func drainWait(every, took, quiet time.Duration) time.Duration {
	return max(every, 10*took, min(quiet/drainQuietShare, drainEveryQuiet))
}

// Drain moves what is staged into queues, until ctx ends. A process that dispatches nothing looks less
// often: it is there for the time when no other is.
func Drain(ctx context.Context, s *stores.Store, dispatches bool, log *slog.Logger) {
	every := drainEveryElsewhere
	if dispatches {
		every = drainEvery
	}
	d, failures, found := pg.NewDrainer(s.Store), 0, time.Now()
	for {
		begun := time.Now()
		out, err := d.Once(ctx)
		safe.Passed(ctx, err)
		wait := drainWait(every, time.Since(begun), time.Since(found))
		switch {
		case err != nil && ctx.Err() == nil:
			failures++
			log.Warn("drain", "error", err)
			wait = backoff.Doubling(failures, 50*time.Millisecond, 2*time.Second)
		case out.Rows > 0:
			failures, found = 0, time.Now()
			log.Debug("drained", "rows", out.Rows, "refused", out.Refused)
			wait = every
		}
		if out.Failed != nil { // the others go on at their pace
			log.Warn("drain: rows stay staged, and are tried again", "error", out.Failed)
		}
		if out.More && out.Rows > 0 {
			wait = 0
		}
		if !pause(ctx, nil, wait) {
			return
		}
	}
}
