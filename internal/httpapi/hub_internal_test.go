package httpapi

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
)

// One slow look delays no later look. Looks become rare where two in a row were slow.
func TestTheHubRestsByHowSlowItsLooksAre(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, c := range []struct {
		youngest     time.Duration
		done, told   bool
		took, before time.Duration
		want         time.Duration
	}{
		{0, false, false, 0, 0, 3 * ms},
		{80 * ms, false, false, ms, ms, 20 * ms},
		{200 * ms, false, false, ms, ms, 50 * ms},
		{0, false, false, 2 * ms, 2 * ms, 10 * ms},
		{0, false, false, 100 * ms, ms, 5 * ms},
		{0, false, false, ms, 100 * ms, 5 * ms},
		{0, false, false, 100 * ms, 80 * ms, 400 * ms},
		{200 * ms, true, false, 0, 0, 0},
		{200 * ms, true, false, ms, 2 * ms, 5 * ms},
		{200 * ms, true, true, 0, 0, 3 * ms},
		{0, false, true, 0, 0, 3 * ms},
		{0, true, false, 100 * ms, 80 * ms, 400 * ms},
	} {
		if got := rest(c.youngest, c.done, c.told, c.took, c.before); got != c.want {
			t.Errorf("the last came %v ago, done %v, told %v, the last looks took %v and %v: rests %v, want %v",
				c.youngest, c.done, c.told, c.took, c.before, got, c.want)
		}
	}
}

// The process that ends a transaction tells every request that waits for this end, and wakes no other one.
func TestTheHubHearsOfEndsInItsProcess(t *testing.T) {
	t.Parallel()
	h := newHub(nil, 10, nil)
	h.running = true // no loop looks into the database
	one, other := outbox.ID{Queue: 1}, outbox.ID{Queue: 2}
	ctx := context.WithValue(t.Context(), scopeKey{}, &scope{Context: new(pg.Context)})
	var left sync.WaitGroup
	for _, id := range []outbox.ID{one, one, other} {
		left.Go(func() { h.wait(ctx, id, &waitSpec{length: time.Minute}) })
	}
	all := func() (over, waiting int) {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, waits := range h.waiting {
			for _, w := range waits {
				if waiting++; w.over {
					over++
				}
			}
		}
		return over, waiting
	}
	for _, n := all(); n < 3; _, n = all() {
		time.Sleep(time.Millisecond)
	}
	<-h.came // of those who came
	h.over(outbox.ID{Queue: 3})
	if over, _ := all(); over != 0 || len(h.came) != 0 {
		t.Errorf("an end that nobody waits for: %d told, woken %d", over, len(h.came))
	}
	h.over(one)
	if over, _ := all(); over != 2 || len(h.came) != 1 {
		t.Errorf("an end that two wait for: %d told, woken %d", over, len(h.came))
	}
	h.close()
	left.Wait()
	if _, waiting := all(); waiting != 0 {
		t.Errorf("%d still wait", waiting)
	}
}
