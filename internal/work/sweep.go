package work

import (
	"context"
	"errors"
	"time"
)

// reapAfter is how long a queue that nobody configured stays in the hot table after it became idle.
const reapAfter = 24 * time.Hour

// SweepOnce does what must be done now and then by somebody: bury dead nodes, release whatever has no
// live owner, take ends to those who wait for them, put queues into the lanes that they now need, and take idle queues out of the hot table.
func (e *Engine) SweepOnce(ctx context.Context) error {
	_, buried := e.Store.Bury(ctx)
	e.release(ctx)
	moved, relaned := e.Store.Relane(ctx)
	now, told := e.Store.Now(ctx)
	var reaped int
	var reap error
	if told == nil {
		reaped, reap = e.Store.Reap(ctx, now.Add(-reapAfter), 1000)
	}
	if moved+reaped > 0 {
		e.Log.Debug("swept", "moved", moved, "reaped", reaped)
	}
	_, rippled := e.Store.Ripple(ctx)
	e.Ring()
	return errors.Join(rippled, buried, relaned, told, reap, e.Store.Forget(ctx), e.Store.TidySubscriptions(ctx))
}

// TendOnce runs the retriers and sweepers of the high-integrity channels whose time has come.
func (e *Engine) TendOnce(ctx context.Context) error {
	t, err := e.Store.TendChannels(ctx)
	if t.Offered+t.Dropped+t.TakenBack > 0 {
		e.Log.Debug("tended channels", "offered", t.Offered, "taken_back", t.TakenBack)
	}
	if t.Dropped > 0 {
		e.Log.Warn("messages of channels were dropped: they were refused as often as their channel allows", "dropped", t.Dropped)
	}
	return err
}

// PartitionOnce creates the partitions of the coming days, and drops those that retention lets go.
func (e *Engine) PartitionOnce(ctx context.Context) error {
	n, err := e.Store.EnsureDays(ctx)
	if n > 0 {
		e.Log.Debug("created partitions", "partitions", n)
	}
	if err != nil {
		return err
	}
	if e.Retention == 0 {
		return e.Store.RetainAll(ctx)
	}
	dropped, err := e.Store.Retain(ctx, e.Retention)
	if dropped > 0 {
		e.Log.Info("dropped days that ended", "days", dropped)
	}
	return err
}
