package pg

import (
	"context"
	"sync"
)

// group gathers what comes in while a commit is in flight into the next one: no timer, no added wait
// when idle, one commit for many when busy.
type group[T, R any] struct {
	run   func(context.Context, []T) ([]R, error)
	limit int

	mu      sync.Mutex
	waiting []waiter[T, R]
	flying  int
	flights int // commits in flight at most
}

// worthAFlight is how many have to wait before a second commit goes beside one in flight: fewer cost a commit of
// their own, and are served as soon by the next.
const worthAFlight = 64

type waiter[T, R any] struct {
	item T
	done chan result[R]
}

type result[R any] struct {
	value R
	err   error
}

// do hands item to the next flight and waits for its answer. When ctx ends first the item goes out all
// the same, and only the waiting ends.
func (g *group[T, R]) do(ctx context.Context, item T) (R, error) {
	w := waiter[T, R]{item, make(chan result[R], 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, w)
	if g.flying == 0 || g.flying < g.flights && len(g.waiting) >= worthAFlight {
		g.flying++
		go g.fly(context.WithoutCancel(ctx))
	}
	g.mu.Unlock()
	select {
	case r := <-w.done:
		return r.value, r.err
	case <-ctx.Done():
		var zero R
		return zero, ctx.Err()
	}
}

// fly runs flights until nothing waits.
func (g *group[T, R]) fly(ctx context.Context) {
	for {
		g.mu.Lock()
		if len(g.waiting) == 0 || g.flying > 1 && len(g.waiting) < worthAFlight {
			g.flying--
			g.mu.Unlock()
			return
		}
		n := min(len(g.waiting), g.limit)
		batch := g.waiting[:n:n]
		g.waiting = g.waiting[n:]
		if len(g.waiting) == 0 {
			g.waiting = nil
		}
		g.mu.Unlock()
		items := make([]T, n)
		for i, w := range batch {
			items[i] = w.item
		}
		values, err := g.run(ctx, items)
		for i, w := range batch {
			r := result[R]{err: err}
			if err == nil {
				r.value = values[i]
			}
			w.done <- r
		}
	}
}
