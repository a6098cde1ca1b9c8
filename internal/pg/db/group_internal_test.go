package db

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
)

// doubling is a group whose rounds wait for leave, if it is there, and tell of their batches before.
func doubling(batches chan []int, leave chan error) *Group[int, int] {
	return &Group[int, int]{Limit: 256, AtOnce: 2, Run: func(ctx context.Context, items []int) ([]int, error) {
		if batches != nil {
			batches <- slices.Clone(items)
		}
		if leave != nil {
			if err := <-leave; err != nil {
				return nil, err
			}
		}
		out := make([]int, len(items))
		for i, n := range items {
			out[i] = 2 * n
		}
		return out, ctx.Err()
	}}
}

func (g *Group[T, R]) waits(n int) {
	for {
		g.mu.Lock()
		got := len(g.waiting)
		g.mu.Unlock()
		if got == n {
			return
		}
	}
}

// A caller that runs the commit itself gets its answer, although the context of the caller ends. A caller that waits
// for another round leaves when its context ends, and its item goes out all the same.
func TestAnItemGoesOutWhoeverLeaves(t *testing.T) {
	batches, leave := make(chan []int), make(chan error)
	g := doubling(batches, leave)
	call := func(item int) (func(), chan result[int]) {
		ctx, cancel := context.WithCancel(t.Context())
		out := make(chan result[int], 1)
		go func() {
			v, err := g.Do(ctx, item)
			out <- result[int]{v, err}
		}()
		return cancel, out
	}
	left, first := call(1)
	if got := <-batches; !slices.Equal(got, []int{1}) {
		t.Fatal(got)
	}
	gone, waited := call(2)
	g.waits(1)
	_, stays := call(3)
	g.waits(2)
	left()
	gone()
	if got := <-waited; !errors.Is(got.err, context.Canceled) {
		t.Error("who waits has left with", got)
	}
	select {
	case got := <-first:
		t.Error("who flies has left with", got)
	default:
	}
	leave <- nil
	if got := <-first; got != (result[int]{2, nil}) { // before the next round has ended
		t.Error(got)
	}
	if got := <-batches; !slices.Equal(got, []int{2, 3}) {
		t.Error("the next round has", got)
	}
	leave <- nil
	if got := <-stays; got != (result[int]{6, nil}) {
		t.Error(got)
	}
}

// A round that fails or panics gives its place to the callers that wait. The outcome of a round that panicked is
// unknown.
func TestARoundThatEndsBadlyIsFollowedByTheNext(t *testing.T) {
	for _, bad := range []any{errors.New("broken"), "a panic"} {
		t.Run(fmt.Sprint(bad), func(t *testing.T) {
			batches, leave := make(chan []int), make(chan error)
			g := doubling(batches, leave)
			first, run := true, g.Run
			g.Run = func(ctx context.Context, items []int) ([]int, error) {
				out, err := run(ctx, items)
				if first {
					if first = false; bad == "a panic" {
						panic(bad)
					}
				}
				return out, err
			}
			ended := make(chan any)
			go func() {
				_, err := g.Do(t.Context(), 1)
				ended <- err
			}()
			<-batches
			second := make(chan result[int])
			go func() {
				v, err := g.Do(t.Context(), 2)
				second <- result[int]{v, err}
			}()
			g.waits(1)
			err, _ := bad.(error)
			leave <- err
			if got := (<-ended).(error); err != nil && got != err ||
				err == nil && fault.CodeOf(got) != "commit_unknown" {
				t.Error(got)
			}
			<-batches
			leave <- nil
			if got := <-second; got != (result[int]{4, nil}) {
				t.Error(got)
			}
		})
	}
}

// Every caller of a round that panics is told commit_unknown, and so is a caller for whom a round has no answer.
// Callers that came later have rounds of their own.
func TestAPanicIsAnsweredToAllWhoWaitForIt(t *testing.T) {
	batches, leave := make(chan []int), make(chan error)
	g := doubling(batches, leave)
	run := g.Run
	g.Run = func(ctx context.Context, items []int) ([]int, error) {
		out, err := run(ctx, items)
		switch {
		case slices.Contains(items, 10):
			panic("a panic")
		case slices.Contains(items, 20):
			return out[1:], err
		}
		return out, err
	}
	do := func(n int) chan error {
		out := make(chan error, 1)
		go func() {
			_, err := g.Do(t.Context(), n)
			out <- err
		}()
		return out
	}
	first := do(1)
	<-batches
	var bad []chan error
	for _, n := range []int{10, 11, 12} {
		bad = append(bad, do(n))
	}
	g.waits(3)
	leave <- nil
	<-batches
	good := do(2)
	g.waits(1)
	leave <- nil
	<-batches
	bad = append(bad, do(20))
	g.waits(1)
	leave <- nil
	<-batches
	leave <- nil
	for _, c := range bad {
		if err := <-c; fault.CodeOf(err) != "commit_unknown" {
			t.Error(err)
		}
	}
	if err := errors.Join(<-first, <-good); err != nil {
		t.Error(err)
	}
}

// However many call at once, each gets its own answer, no round is larger than the limit, and none is left over.
func TestManyCallersGetTheirOwnAnswers(t *testing.T) {
	g := doubling(nil, nil)
	g.Limit = 70
	run := g.Run
	g.Run = func(ctx context.Context, items []int) ([]int, error) {
		if len(items) > g.Limit {
			t.Error(len(items), "in one round")
		}
		return run(ctx, items)
	}
	var all sync.WaitGroup
	for caller := range 300 {
		all.Go(func() {
			for i := range 50 {
				n := caller*50 + i
				if got, err := g.Do(t.Context(), n); err != nil || got != 2*n {
					t.Error(n, got, err)
				}
			}
		})
	}
	all.Wait()
	g.waits(0)
	for left := 1; left > 0; { // a round that found nothing left may be on its way out
		g.mu.Lock()
		left = g.rounds
		g.mu.Unlock()
	}
}

// A round carries items up to its limit of weight, in the order in which they came. An item that is heavier than the
// limit goes by itself.
func TestARoundGoesByWeight(t *testing.T) {
	batches, leave := make(chan []int), make(chan error)
	g := doubling(batches, leave)
	g.Limit, g.AtOnce = 100, 1
	g.Weigh = func(n int) int { return n }
	var all sync.WaitGroup
	call := func(n int) {
		all.Go(func() {
			if got, err := g.Do(t.Context(), n); err != nil || got != 2*n {
				t.Error(n, got, err)
			}
		})
	}
	call(1)
	got := [][]int{<-batches}
	for i, n := range []int{60, 40, 1, 200, 98, 1, 1} {
		call(n)
		g.waits(i + 1)
	}
	if g.weight != 401 {
		t.Error(g.weight, "wait")
	}
	for range 4 {
		leave <- nil
		got = append(got, <-batches)
	}
	leave <- nil
	all.Wait()
	if want := [][]int{{1}, {60, 40}, {1}, {200}, {98, 1, 1}}; !reflect.DeepEqual(got, want) {
		t.Error(got, "instead of", want)
	}
	if g.weight != 0 {
		t.Error(g.weight, "is left over")
	}
}

// Each item that can be done is done, in order, in few rounds. An item that cannot be done fails alone. Where parts may
// not be tried, all of the list fails.
func TestABadItemFailsAlone(t *testing.T) {
	bad, list := errors.New("bad"), make([]int, 300)
	for i := range list {
		list[i] = i
	}
	for may, want := range map[bool]int{true: 2, false: 300} {
		var done, failed []int
		rounds := 0
		Apart(list, func(part []int) error {
			rounds++
			if slices.Contains(part, 70) || slices.Contains(part, 299) {
				return bad
			}
			done = append(done, part...)
			return nil
		}, func(error) bool { return may }, func(part []int, err error) { failed = append(failed, part...) })
		if !slices.IsSorted(done) || len(failed) != want || len(done) != 300-want || rounds > 60 {
			t.Errorf("%d done and %v failed in %d rounds", len(done), failed, rounds)
		}
	}
}

// A round that fails is answered item by item: each with what is its own.
func TestARoundThatFailsIsTriedInParts(t *testing.T) {
	g := doubling(nil, nil)
	run, may := g.Run, true
	g.Partable = func(context.Context, error) bool { return may }
	g.Run = func(ctx context.Context, items []int) ([]int, error) {
		if slices.Contains(items, 13) {
			return nil, fmt.Errorf("%d items", len(items))
		}
		return run(ctx, items)
	}
	for _, may = range []bool{true, false} {
		var batch []waiter[int, int]
		for n := range 40 {
			batch = append(batch, waiter[int, int]{n, 1, make(chan result[int], 1)})
		}
		g.serve(t.Context(), batch)
		for n, w := range batch {
			r := <-w.done
			switch {
			case !may && fmt.Sprint(r.err) != "40 items", may && n == 13 && fmt.Sprint(r.err) != "1 items",
				may && n != 13 && (r.err != nil || r.value != 2*n):
				t.Errorf("parts %v, %d: %+v", may, n, r)
			}
		}
	}
}
