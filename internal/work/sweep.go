package work

import (
	"context"
	"errors"
	"time"
)

// reapAfter is how long a queue without settings stays in the hot table after it became idle.
const reapAfter = 24 * time.Hour

// reapAtOnce is how many one SQL transaction takes.
const reapAtOnce = 1000

// SweepOnce does at once what is done now and then: bury dead nodes, release queues without a live owner, take ends to
// transactions that depend on them, put queues into the lanes that they now need, and take idle queues out of the hot
// table.
func (e *Engine) SweepOnce(ctx context.Context) error {
	_, buried := e.Store.Bury(ctx)
	return errors.Join(buried, e.sweep(ctx), e.reap(ctx))
}

// sweep is the part of it that reads no whole table, so that it can be done often. Nodes are buried by the heartbeat.
func (e *Engine) sweep(ctx context.Context) error {
	e.release(ctx)
	moved, relaned := e.Store.Relane(ctx)
	if moved > 0 {
		e.Log.Debug("queues wait for another thing, since settings have changed", "queues", moved)
	}
	_, rippled := e.Store.Ripple(ctx)
	e.Ring()
	errs := []error{rippled, relaned, e.Store.Forget(ctx)}
	for _, s := range e.systems {
		if s.Sweep != nil {
			errs = append(errs, s.Sweep(ctx))
		}
	}
	return errors.Join(errs...)
}

// calm says whether this process has run for long enough to look at all queues, which takes a microsecond for each: for
// as long as sparing would rest afterwards. A process that starts has better things to do.
func (e *Engine) calm(ctx context.Context) (bool, error) {
	n, err := e.Store.QueuesAbout(ctx)
	return time.Since(e.born) > restAfter(time.Duration(n)*time.Microsecond), err
}

// calmly is do, which looks at all queues, or nothing while the process is not calm.
func (e *Engine) calmly(do func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if calm, err := e.calm(ctx); err != nil || !calm {
			return err
		}
		return do(ctx)
	}
}

// reap takes idle queues out of the hot table.
func (e *Engine) reap(ctx context.Context) error {
	now, err := e.Store.Now(ctx)
	if err != nil {
		return err
	}
	n, err := e.Store.Reap(ctx, now.Add(-reapAfter), reapAtOnce)
	if n > 0 {
		e.Log.Debug("took idle queues out of the hot table", "queues", n)
	}
	return err
}

// PartitionOnce makes the partitions of the coming days, in spans as wide as retention asks for, or drops those that
// retention lets go. Behind each of the two all connections plan anew what reads days. Together that is felt where
// the processors have little to spare, so that a process that has made some leaves the dropping to the next time, an
// hour later.
func (e *Engine) PartitionOnce(ctx context.Context) error {
	if err := e.Store.Keep(ctx, e.Retention); err != nil {
		return err
	}
	n, err := e.Store.EnsureDays(ctx)
	if n > 0 {
		e.Log.Debug("made partitions", "partitions", n)
	}
	if n > 0 || err != nil {
		return err
	}
	if e.Retention == 0 {
		return e.Store.RetainAll(ctx)
	}
	dropped, err := e.Store.Retain(ctx, e.Retention)
	if dropped > 0 {
		e.Log.Info("dropped days that ended", "spans", dropped)
	}
	return err
}
