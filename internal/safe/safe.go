// Package safe keeps a panic to the work that met it. A goroutine of Postern begins here:
//
//	go safe.Run("place", f)                     // instead of go f()
//	group.Go(safe.Func("place", f))             // instead of group.Go(f)
//	time.AfterFunc(d, safe.Func("place", f))    // as context.AfterFunc and http handlers
//	err := safe.Try("place", f)                 // where somebody waits for an answer
//	go loops.Run(ctx, "place", f)               // where it goes on until ctx ends
//	group.Go(loops.Func(ctx, "place", f))
//
// A panic is told, with its stack, to listeners (Hear), which count and log it; without a listener it is written to
// standard error. place is a constant of the program, since it is a label of a metric.
//
// It is std only, and stands below all that starts goroutines. Unlike what decides, it knows a clock.
package safe

import (
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Panic is a panic that was recovered, as an error.
type Panic struct {
	Place string
	Value any
	Stack []byte
}

// Error names the place and the value; the stack is for the log.
func (p *Panic) Error() string { return fmt.Sprintf("panic in %s: %v", p.Place, p.Value) }

// Unwrap returns the value, where that is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// Run runs f. A panic ends f, is told, and goes no further.
func Run(place string, f func()) {
	defer Recover(place)
	provoke(place)
	f()
}

// Func is f under Run.
func Func(place string, f func()) func() { return func() { Run(place, f) } }

// Try runs f and returns its error; a panic is told, and returned as a *Panic.
func Try(place string, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = Told(place, v)
		}
	}()
	provoke(place)
	return f()
}

// Recover is for `defer safe.Recover("place")`: it does what Run does about a panic.
func Recover(place string) {
	if v := recover(); v != nil {
		Told(place, v)
	}
}

// Told tells of a panic whose value the caller has recovered, and returns it as an error. It is to be called by the
// deferred function, where the stack still shows who panicked.
func Told(place string, value any) *Panic {
	p := &Panic{Place: place, Value: value, Stack: debug.Stack()}
	listeners.RLock()
	defer listeners.RUnlock()
	if len(listeners.list) == 0 {
		fmt.Fprintf(os.Stderr, "%v\n%s", p, p.Stack)
	}
	for _, hear := range listeners.list {
		hear(p)
	}
	return p
}

var listeners struct {
	sync.RWMutex
	list map[*byte]func(*Panic)
}

// Hear has f told of each panic of this process until stop is called. f must not panic, and starts nothing that could.
func Hear(f func(*Panic)) (stop func()) {
	key := new(byte)
	listeners.Lock()
	defer listeners.Unlock()
	if listeners.list == nil {
		listeners.list = map[*byte]func(*Panic){}
	}
	listeners.list[key] = f
	return func() {
		listeners.Lock()
		defer listeners.Unlock()
		delete(listeners.list, key)
	}
}

// provoked is what tests have run at the beginning of each place; nil outside of them.
var provoked atomic.Pointer[func(place string)]

// Provoke has f run at the beginning of all that this package runs, where it may panic, until stop is called. For
// tests.
func Provoke(f func(place string)) (stop func()) {
	provoked.Store(&f)
	return func() { provoked.CompareAndSwap(&f, nil) }
}

func provoke(place string) {
	if f := provoked.Load(); f != nil {
		(*f)(place)
	}
}
