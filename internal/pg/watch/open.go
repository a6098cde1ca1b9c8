package watch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/backoff"
)

// openAtOnce is how many connections a process opens at a time, so that a server which comes back is not met by all of
// them. One that takes longer than openSlot holds up no other.
const (
	openAtOnce = 4
	openSlot   = time.Second
)

// After a connection that could not be opened, none is tried for a pause, which doubles from pauseFirst to pauseMost and
// has chance in it.
const (
	pauseFirst = 100 * time.Millisecond
	pauseMost  = time.Second
)

// opening is which connections are being opened, and when the next may be.
type opening struct {
	slots chan struct{}

	mu       sync.Mutex
	failures int
	until    time.Time
	last     error
}

// begin waits for a place, or returns why there is no use in trying now. done takes what came of it, and may be called
// again.
func (o *opening) begin(ctx context.Context) (done func(error), err error) {
	o.mu.Lock()
	last, left := o.last, time.Until(o.until)
	o.mu.Unlock()
	if left > 0 {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("not tried again for %s: %w", left.Round(time.Millisecond), last)}
	}
	select {
	case o.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var slot, end sync.Once
	free := func() { slot.Do(func() { <-o.slots }) }
	long := time.AfterFunc(openSlot, free)
	return func(err error) {
		end.Do(func() {
			long.Stop()
			free()
			o.ended(err)
		})
	}, nil
}

// ended notes how an opening has ended.
func (o *opening) ended(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		o.failures, o.until = 0, time.Time{}
		return
	}
	if time.Now().Before(o.until) { // it began before the pause
		return
	}
	o.failures++
	pause := backoff.Doubling(o.failures, pauseFirst, pauseMost)
	o.last, o.until = err, time.Now().Add(pause/2+backoff.FullJitter(pause/2, rand.Float64()))
}
