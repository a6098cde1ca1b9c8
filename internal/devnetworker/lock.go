package devnetworker

import (
	"context"
	"sync"
)

// locks is a lock for each name that is in use.
type locks struct {
	mu sync.Mutex
	of map[string]*turn
}

// turn is a lock that somebody holds or waits for.
type turn struct {
	free  chan struct{} // holds one token while the lock is free
	users int
}

// take takes the lock of a name, or gives up with ctx.
func (l *locks) take(ctx context.Context, name string) (release func(), err error) {
	l.mu.Lock()
	if l.of == nil {
		l.of = map[string]*turn{}
	}
	t := l.of[name]
	if t == nil {
		t = &turn{free: make(chan struct{}, 1)}
		t.free <- struct{}{}
		l.of[name] = t
	}
	t.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(l.of, name)
		}
	}
	select {
	case <-t.free:
		return func() { t.free <- struct{}{}; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
