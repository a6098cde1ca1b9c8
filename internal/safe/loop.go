package safe

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A loop that has panicked so often within so long is failing. It says so until it has not panicked for as long.
const (
	failsAt     = 5
	failsWithin = time.Minute
)

// After a panic a loop begins anew, the later the more often it has panicked lately.
const (
	restFirst = 50 * time.Millisecond
	restMost  = 5 * time.Second
)

// Loops are those of one process that are to go on for as long as it runs. The zero value is ready, and nil is one that
// remembers nothing.
type Loops struct {
	mu     sync.Mutex
	panics map[string][]time.Time // of the last minute, by loop
}

type loopKey struct{}

type loop struct {
	of    *Loops
	place string
}

// In is ctx under which what Noted is told of counts for the loop.
func (l *Loops) In(ctx context.Context, place string) context.Context {
	return context.WithValue(ctx, loopKey{}, loop{l, place})
}

// Noted counts a panic for the loop under whose ctx it was recovered, which goes on: it sees an error.
func Noted(ctx context.Context) {
	if l, ok := ctx.Value(loopKey{}).(loop); ok {
		l.of.note(l.place, time.Now())
	}
}

// Run runs f until it returns without a panic or ctx ends. After a panic it is run again, after a rest.
func (l *Loops) Run(ctx context.Context, place string, f func(context.Context)) {
	inside := l.In(ctx, place)
	for {
		err := Try(place, func() error { f(inside); return nil })
		if err == nil {
			return
		}
		rest := time.NewTimer(l.note(place, time.Now()))
		select {
		case <-rest.C:
		case <-ctx.Done():
			rest.Stop()
			return
		}
	}
}

// Func is f under Run.
func (l *Loops) Func(ctx context.Context, place string, f func(context.Context)) func() {
	return func() { l.Run(ctx, place, f) }
}

// note remembers a panic and returns how long to rest.
func (l *Loops) note(place string, now time.Time) time.Duration {
	if l == nil {
		return restMost
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.panics == nil {
		l.panics = map[string][]time.Time{}
	}
	list := append(recent(l.panics[place], now), now)
	list = list[max(0, len(list)-failsAt):]
	l.panics[place] = list
	return min(restFirst<<(2*(len(list)-1)), restMost)
}

func recent(list []time.Time, now time.Time) []time.Time {
	return slices.DeleteFunc(list, func(at time.Time) bool { return now.Sub(at) >= failsWithin })
}

// Failing says which loops have panicked five times within a minute, "" for none.
func (l *Loops) Failing() string { return l.failing(time.Now()) }

func (l *Loops) failing(now time.Time) (detail string) {
	if l == nil {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for place := range l.panics {
		list := recent(l.panics[place], now)
		if l.panics[place] = list; len(list) >= failsAt {
			names = append(names, place)
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return fmt.Sprintf("panicked %d times within a minute, and begin anew after a rest: %v; the log has the stacks", failsAt, names)
}
