package db

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/safe"
)

// Group gathers what comes in while a commit is under way into the next one: no timer, no added wait when idle, one
// commit for many when busy. One call of Run is a round.
//
// A round that panics is answered to all who wait for it as "commit_unknown", and the next one begins.
type Group[T, R any] struct {
	Name     string // of its panics
	Run      func(context.Context, []T) ([]R, error)
	Partable func(context.Context, error) bool // nil: items of a round that failed are not tried again
	Weigh    func(T) int                       // nil: each is one
	Limit    int                               // of weight in one round, unless its first item alone weighs more
	AtOnce   int                               // rounds at most at a time

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
	answer := func(part []waiter[T, R]) error {
		items := make([]T, len(part))
		for i, w := range part {
			items[i] = w.item
		}
		values, err := g.round(ctx, items)
		if err == nil {
			for i, w := range part {
				w.done <- result[R]{value: values[i]}
			}
		}
		return err
	}
	partable := func(err error) bool { return g.Partable != nil && g.Partable(ctx, err) }
	Apart(batch, answer, partable, func(part []waiter[T, R], err error) {
		for _, w := range part {
			w.done <- result[R]{err: err}
		}
	})
}

// Apart does a list at once. Where that has changed nothing, and each part may be tried by itself, it does parts of
// the list in the same way, down to single items: no item fails by the error of another one, whatever the error is.
// do keeps its own results, in order; failed hears of what has failed, which is the whole list where parts may not be
// tried.
func Apart[T any](list []T, do func([]T) error, partable func(error) bool, failed func([]T, error)) {
	err := do(list)
	switch {
	case err == nil:
	case len(list) == 1 || !partable(err):
		failed(list, err)
	default:
		for part := range slices.Chunk(list, (len(list)+parts-1)/parts) {
			Apart(part, do, partable, failed)
		}
	}
}

// parts is into how many a list is parted: one bad item of 256 costs 32 commits, and is found at the third.
const parts = 16

// Partable says whether what failed with err may be tried again in parts: it is known that it was not committed, and
// the database answers. It is asked only where something has failed.
func (db *DB) Partable(ctx context.Context, err error) bool {
	if fault.CodeOf(err) == "commit_unknown" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, partableWithin)
	defer cancel()
	return db.pool.Ping(ctx) == nil
}

// SessionLost says whether an error is that of the session: the server ended it, or its connection broke.
func SessionLost(err error) bool {
	e := (*pgconn.PgError)(nil)
	if errors.As(err, &e) {
		return fatal(e)
	}
	return fault.CodeOf(err) == "database_unavailable"
}

// partableWithin is how long the database may take to answer before nothing more is tried.
const partableWithin = 2 * time.Second
