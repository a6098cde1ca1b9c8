package worker

import (
	"context"
	"time"
)

// remind runs a hook once per token: delivery is at least once, so the same token may come again. No fence holds for
// hooks: they come after the end, from any node that has time.
func (w *Worker) remind(caller context.Context, in Info, run func(context.Context, Info) error) (Answer, error) {
	a, _, _, err := w.execute(caller, in, false, func(ctx context.Context, in Info) (Answer, error) {
		if err := run(ctx, in); err != nil {
			return Answer{}, Blocked("hook_failed", err.Error(), time.Time{})
		}
		return Done(true), nil
	})
	return a, err
}
