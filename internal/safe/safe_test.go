package safe

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// hear gathers what is told.
func hear(t *testing.T) func() []*Panic {
	var mu sync.Mutex
	var list []*Panic
	t.Cleanup(Hear(func(p *Panic) {
		mu.Lock()
		defer mu.Unlock()
		list = append(list, p)
	}))
	return func() []*Panic {
		mu.Lock()
		defer mu.Unlock()
		return list
	}
}

func TestAPanicIsToldWithItsStackAndEndsItsOwnWorkOnly(t *testing.T) {
	told := hear(t)
	var group sync.WaitGroup
	group.Go(Func("group", broken))
	go Run("goroutine", broken)
	group.Wait()
	if err := Try("try", func() error { return io.EOF }); err != io.EOF {
		t.Error(err)
	}
	err := Try("try", func() error { broken(); return nil })
	if p := (*Panic)(nil); !errors.As(err, &p) || p.Place != "try" || !strings.Contains(err.Error(), "nil pointer") {
		t.Error(err)
	}
	if err := Try("try", func() error { panic(io.EOF) }); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	for len(told()) < 4 {
		time.Sleep(time.Millisecond)
	}
	for _, p := range told() {
		if !strings.Contains(string(p.Stack), "broken") && p.Value != io.EOF {
			t.Errorf("the stack of %v does not show who panicked:\n%s", p, p.Stack)
		}
	}
}

func broken() {
	var nothing *Panic
	_ = nothing.Place
}

func TestALoopGoesOnAfterAPanicAndSaysThatItFails(t *testing.T) {
	told := hear(t)
	l := &Loops{}
	var n atomic.Int32
	l.Run(t.Context(), "loop", func(context.Context) {
		if n.Add(1) < 3 {
			broken()
		}
	})
	if n.Load() != 3 || len(told()) != 2 || l.Failing() != "" {
		t.Error(n.Load(), told(), l.Failing())
	}
	now := time.Now()
	for range failsAt - 3 {
		l.note("loop", now)
	}
	l.note("other", now)
	if got := l.failing(now); got != "" {
		t.Error("after four:", got)
	}
	if rest := l.note("loop", now); rest != restMost {
		t.Error(rest)
	}
	if got := l.failing(now); !strings.Contains(got, "[loop]") {
		t.Error("after five:", got)
	}
	if got := l.failing(now.Add(failsWithin)); got != "" {
		t.Error("a minute later:", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	(*Loops)(nil).Run(ctx, "loop", func(context.Context) { broken() })
}
