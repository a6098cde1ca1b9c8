package safe

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
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
	failed map[string]*failure    // loops whose last pass failed
}

// A loop all of whose passes have failed for so long says so. It is forgotten where it makes no passes any more.
const (
	failsFor   = 30 * time.Second
	failsUntil = 5 * time.Minute
)

// failure is that of a loop whose last pass failed.
type failure struct {
	since, last time.Time
	passes      int
	err         error // of the last pass
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

// Passed notes how a pass of the loop under whose ctx it ran has ended. A pass that the end of ctx has ended is none.
func Passed(ctx context.Context, err error) {
	if l, ok := ctx.Value(loopKey{}).(loop); ok && ctx.Err() == nil {
		l.of.passed(l.place, err, time.Now())
	}
}

func (l *Loops) passed(place string, err error, now time.Time) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		delete(l.failed, place)
		return
	}
	if l.failed == nil {
		l.failed = map[string]*failure{}
	}
	f := l.failed[place]
	if f == nil || now.Sub(f.last) >= failsUntil {
		f = &failure{since: now}
		l.failed[place] = f
	}
	f.last, f.err = now, err
	f.passes++
}

// stuck says which loops have failed in every pass for 30 s, and why. The caller holds mu.
func (l *Loops) stuck(now time.Time) (list []string) {
	for _, place := range slices.Sorted(maps.Keys(l.failed)) {
		f := l.failed[place]
		if f.passes < 2 || now.Sub(f.since) < failsFor || now.Sub(f.last) >= failsUntil {
			continue
		}
		why := []rune(f.err.Error())
		list = append(list, fmt.Sprintf("%s has failed in every pass since %s: %s",
			place, f.since.UTC().Format(time.RFC3339), string(why[:min(len(why), whyMost)])))
	}
	return list
}

// whyMost is how many characters of an error are shown.
const whyMost = 300

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

// Failing says which loops have panicked five times within a minute, or failed in every pass for 30 s; "" for none.
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
	all := l.stuck(now)
	if len(names) > 0 {
		slices.Sort(names)
		all = append(all, fmt.Sprintf("panicked %d times within a minute, and begin anew after a rest: %v; "+
			"the log has the stacks", failsAt, names))
	}
	return strings.Join(all, "; ")
}
