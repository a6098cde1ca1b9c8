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

// A loop that fails in every pass says so after 30 s, and no more once a pass has gone well or it makes none any more.
func TestALoopThatFailsInEveryPassSaysSoAndWhy(t *testing.T) {
	l := &Loops{}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	after := func(d time.Duration) time.Time { return at.Add(d) }
	l.passed("drain", io.EOF, at)
	l.passed("drain", io.EOF, after(29*time.Second))
	if why := l.failing(after(29 * time.Second)); why != "" {
		t.Error(why)
	}
	l.passed("drain", io.ErrUnexpectedEOF, after(30*time.Second))
	want := "drain has failed in every pass since 2026-01-02T03:04:05Z: unexpected EOF"
	if why := l.failing(after(30 * time.Second)); why != want {
		t.Errorf("%q, want %q", why, want)
	}
	if why := l.failing(after(10 * time.Minute)); why != "" {
		t.Errorf("it makes no passes any more: %s", why)
	}
	l.passed("drain", nil, after(31*time.Second))
	l.passed("drain", io.EOF, after(32*time.Second))
	l.passed("once", io.EOF, after(32*time.Second)) // a single pass is not every pass
	if why := l.failing(after(65 * time.Second)); why != "" {
		t.Error(why)
	}
	ctx, end := context.WithCancel(l.In(t.Context(), "ends"))
	end()
	Passed(ctx, io.EOF)
	Passed(t.Context(), io.EOF)
	if l.failed["ends"] != nil {
		t.Error("the end of a loop counts as a failure of it")
	}
}
