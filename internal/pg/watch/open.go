package watch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/backoff"
	"github.com/postern-dev/postern/internal/safe"
)

// openAtOnce is how many connections a process opens at a time, so that a server which comes back is not met by all of
// them. One that takes longer than openSlot holds up no other.
const (
	openAtOnce = 4
	openSlot   = time.Second
)

// After a connection that could not be opened, none is tried for a pause, which doubles from pauseFirst to pauseMost
// and has chance in it.
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

// attempt is one connection that is being opened. It may take several sockets: one for each address, with TLS and
// without.
type attempt struct {
	open    *opening
	begun   bool
	refused error  // there was no use in trying
	free    func() // its place
}

// begin waits for a place before the first socket, or returns why there is no use in trying now.
func (a *attempt) begin(ctx context.Context) error {
	if a.begun {
		return a.refused
	}
	a.begun = true
	if a.refused = a.open.pausing(); a.refused != nil {
		return a.refused
	}
	select {
	case a.open.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	slot := sync.OnceFunc(func() { <-a.open.slots })
	long := time.AfterFunc(openSlot, safe.Func("opening of connections", slot))
	a.free = func() {
		long.Stop()
		slot()
	}
	return nil
}

// end gives the place away, and notes how the opening has ended.
func (a *attempt) end(err error) {
	if a.free != nil {
		a.free()
	}
	if a.refused == nil {
		a.open.ended(err)
	}
}

// pausing says why nothing is opened now; nil: it may be.
func (o *opening) pausing() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	left := time.Until(o.until)
	if left <= 0 {
		return nil
	}
	return &net.OpError{Op: "dial", Net: "tcp",
		Err: fmt.Errorf("not tried again for %s: %w", left.Round(time.Millisecond), o.last)}
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
