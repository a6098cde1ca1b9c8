package db

import (
	"context"
	"time"
)

// Waiting is what somebody waits for who asked with a wait.
type Waiting struct {
	Length time.Duration
	Every  time.Duration                       // how often it looks
	End    <-chan struct{}                     // closed: it is to be answered now
	Rung   func() <-chan struct{}              // wakes it before the next look
	First  bool                                // what rings wakes it alone, so that it goes to look for itself
	There  func(context.Context) (bool, error) // what it looks for
}

// Await looks until there is something, its time is over or ctx ends. It hangs up the bell before it looks, so that
// what comes behind a look is heard.
func Await(ctx context.Context, w Waiting) error {
	over := time.NewTimer(w.Length)
	defer over.Stop()
	look := time.NewTicker(w.Every)
	defer look.Stop()
	for {
		rung := w.Rung()
		if there, err := w.There(ctx); err != nil || there {
			return Known(err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.End:
			return nil
		case <-over.C:
			return nil
		case <-rung:
			if w.First {
				return nil
			}
		case <-look.C:
		}
	}
}
