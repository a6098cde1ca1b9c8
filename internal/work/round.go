package work

import (
	"context"
	"errors"
	"time"
)

// Manual registers the engine as a node that does nothing by itself: Round is its only motion. For the
// debug clock and for stories that decide when what happens.
func (e *Engine) Manual(ctx context.Context) error {
	e.calls = ctx
	return e.register(ctx)
}

// Round does everything that can be done now: it fires due timers, claims, calls and settles, and has the systems do
// the same in their order, until nothing moves any more. Calls that hang keep it waiting until ctx ends.
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
		e.flights.Wait() // the room that they free is free for this claim, however fast they are
		leases, _, err := e.lease(ctx, ctx, e.room())
		e.flights.Wait()
		if err = errors.Join(err, e.handLooseBack(ctx)); err != nil {
			return err
		}
		n, err := e.roundOfSystems(ctx)
		if err != nil || ctx.Err() != nil || w.Due+len(leases)+n == 0 {
			return err
		}
	}
}

// roundOfSystems has each system do what can be done now, and returns how much that was.
func (e *Engine) roundOfSystems(ctx context.Context) (did int, err error) {
	for _, s := range e.systems {
		if s.Round == nil {
			continue
		}
		n, err := s.Round(ctx)
		if did += n; err != nil || ctx.Err() != nil {
			return did, err
		}
	}
	return did, nil
}
