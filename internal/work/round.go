package work

import (
	"context"
	"errors"
	"time"
)

// Manual registers the engine as a node that does nothing by itself: Round is its only motion. For the
// debug clock and for stories that decide when what happens.
func (e *Engine) Manual(ctx context.Context) error {
	n, err := e.Store.Register(ctx, e.NodeName, e.Version, e.TTL)
	if err != nil {
		return err
	}
	e.node.Store(&n)
	e.calls = ctx
	return nil
}

// Round does everything that can be done now: it fires due timers, claims, calls and settles, and
// delivers hooks, until nothing moves any more. Calls that hang keep it waiting until ctx ends.
func (e *Engine) Round(ctx context.Context) error {
	for {
		if err := e.Store.Refresh(ctx); err != nil {
			return err
		}
		e.trustFrom(time.Now())
		w, err := e.TimersOnce(ctx, ctx)
		if err != nil {
			return err
		}
		e.flights.Wait() // what they free is free for this claim, however fast they are
		leases, _, err := e.lease(ctx, ctx, e.room())
		e.flights.Wait()
		if err = errors.Join(err, e.handLooseBack(ctx)); err != nil {
			return err
		}
		hooks, err := e.DeliverOnce(ctx)
		if err != nil || ctx.Err() != nil {
			return err
		}
		e.events.next = time.Time{} // lost events are looked for at once
		led, err := e.LeadOnce(ctx)
		if err != nil || ctx.Err() != nil || w.Due+len(leases)+hooks+led == 0 {
			return err
		}
	}
}
