package db

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/safe"
)

// Group gathers what comes in while a commit is under way into the next one: no timer, no added wait when idle, one
// commit for many when busy. One call of Run is a round.
//
// A round that panics is answered to all who wait for it as "commit_unknown", and the next one begins.
type Group[T, R any] struct {
	Name   string // of its panics
	Run    func(context.Context, []T) ([]R, error)
	Weigh  func(T) int // nil: each is one
	Limit  int         // what one round carries, unless its first item alone weighs more
	AtOnce int         // rounds at most at a time

	mu      sync.Mutex
	waiting []waiter[T, R]
	weight  int // of all that wait
	rounds  int // under way
}

// WorthARound is how much has to wait before a second commit goes beside one that is under way: fewer cost a commit of
// their own, and are served as soon by the next.
const WorthARound = 64

type waiter[T, R any] struct {
	item   T
	weight int
	done   chan result[R]
}

type result[R any] struct {
	value R
	err   error
}

// roundWithin bounds a round where no statement's timeout does: on a connection that answers nothing any more.
const roundWithin = time.Minute

// Do brings item into a commit and waits for its answer. A caller that finds no commit under way runs one at once,
// with its own item alone and on its own goroutine, which saves the switches to another one and back; later arrivals
// go into the next round. When ctx ends first, the item goes out all the same: a caller that waits returns, a caller
// that runs the commit stays for an answer that may have no reader any more.
func (g *Group[T, R]) Do(ctx context.Context, item T) (R, error) {
	aside := context.WithoutCancel(ctx)
	g.mu.Lock()
	if g.rounds == 0 { // then nothing waits
		g.rounds = 1
		g.mu.Unlock()
		defer g.passOn(aside)
		return g.alone(aside, item)
	}
	w := waiter[T, R]{item, 1, make(chan result[R], 1)}
	if g.Weigh != nil {
		w.weight = g.Weigh(item)
	}
	g.waiting = append(g.waiting, w)
	g.weight += w.weight
	if g.rounds < g.AtOnce && g.weight >= WorthARound {
		g.rounds++
		go safe.Run("group", func() { g.runRounds(aside) })
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

func (g *Group[T, R]) alone(ctx context.Context, item T) (value R, err error) {
	ctx, cancel := context.WithTimeout(ctx, roundWithin)
	defer cancel()
	values, err := g.round(ctx, []T{item})
	if err == nil {
		value = values[0]
	}
	return value, err
}

// round calls Run once. An answer for each item, or an error for all, comes of it, whatever happens.
func (g *Group[T, R]) round(ctx context.Context, items []T) (values []R, err error) {
	err = safe.Try(g.Name, func() (err error) {
		if values, err = g.Run(ctx, items); err == nil && len(values) != len(items) {
			panic(fmt.Sprintf("%d answers to %d items", len(values), len(items)))
		}
		return err
	})
	if p, ok := err.(*safe.Panic); ok { //nolint:errorlint // as Try returns it; what wraps one is an answer already
		return nil, panicked(p)
	}
	return values, err
}

// passOn hands the place of a caller, whose round has ended, to a goroutine that goes on for those who gathered
// meanwhile, if there are any.
func (g *Group[T, R]) passOn(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) > 0 {
		go safe.Run("group", func() { g.runRounds(ctx) })
	} else {
		g.rounds--
	}
}

// runRounds runs rounds until nothing waits.
func (g *Group[T, R]) runRounds(ctx context.Context) {
	over := false
	defer func() {
		if !over { // by a panic between two rounds: another goroutine takes its place
			g.passOn(ctx)
		}
	}()
	for batch := g.gather(); batch != nil; batch = g.gather() {
		g.serve(ctx, batch)
	}
	over = true
}

// gather takes the next batch of those who wait or, if there is none worth a commit, ends the rounds and returns nil.
func (g *Group[T, R]) gather() []waiter[T, R] {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 || g.rounds > 1 && g.weight < WorthARound {
		g.rounds--
		return nil
	}
	n, weight := 1, g.waiting[0].weight
	for n < len(g.waiting) && weight+g.waiting[n].weight <= g.Limit {
		weight += g.waiting[n].weight
		n++
	}
	g.weight -= weight
	batch := g.waiting[:n:n]
	g.waiting = g.waiting[n:]
	if len(g.waiting) == 0 {
		g.waiting = nil
	}
	return batch
}

// serve runs one round and gives each its answer.
func (g *Group[T, R]) serve(ctx context.Context, batch []waiter[T, R]) {
	ctx, cancel := context.WithTimeout(ctx, roundWithin)
	defer cancel()
	items := make([]T, len(batch))
	for i, w := range batch {
		items[i] = w.item
	}
	values, err := g.round(ctx, items)
	for i, w := range batch {
		r := result[R]{err: err}
		if err == nil {
			r.value = values[i]
		}
		w.done <- r
	}
}

// ByHalves does each half of a list by itself. The failure of one is that of its items alone: the other may be
// committed.
func ByHalves[T, R any](list []T, do func([]T) ([]R, error), failed func(T, error) R) (out []R) {
	for _, part := range [][]T{list[:len(list)/2], list[len(list)/2:]} {
		done, err := do(part)
		if err != nil {
			done = nil
			for _, item := range part {
				done = append(done, failed(item, err))
			}
		}
		out = append(out, done...)
	}
	return out
}
