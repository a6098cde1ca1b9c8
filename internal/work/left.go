package work

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/internal/pg"
)

// codeRefused is the code of a call that this process may not make: its own settings keep it from the address.
const codeRefused = "address_refused"

// leftFor is how long a type is left to others. Then one call is tried again: the settings of the type, or the
// nodes that live, may have changed.
const leftFor = 15 * time.Second

// left are the dispatchers whose workers this node may not call, while another live node may. They are no trouble
// of the worker, so no gate closes for them.
type left struct {
	any   atomic.Bool // so that a claim takes no lock where there are none
	mu    sync.Mutex
	until map[int32]time.Time // by the id of the dispatcher
}

// has says whether the calls of a dispatcher are left to others now.
func (f *left) has(d *pg.Dispatcher) bool {
	if !f.any.Load() {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Before(f.until[d.ID])
}

// add leaves a dispatcher to others for a while, and says whether that is new.
func (f *left) add(d *pg.Dispatcher) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.until == nil {
		f.until = map[int32]time.Time{}
	}
	_, known := f.until[d.ID]
	f.until[d.ID] = time.Now().Add(leftFor)
	f.any.Store(true)
	return !known
}

// leaveToOthers says whether another live node may make the call of a lease, which this one may not: then it claims
// no more of that type for a while, and gives back what it has. Where no other may, the gate closes as for any
// worker that cannot be reached. A sender with an address of its own is given back alone.
func (e *Engine) leaveToOthers(ctx context.Context, l *pg.Lease) bool {
	if e.Reach == nil {
		return false
	}
	place := e.Reach.Find(ctx, l.WorkerURL())
	nodes, err := e.Store.Allowances(ctx)
	if err != nil || len(place.Addrs) == 0 {
		return false
	}
	for _, n := range nodes {
		if !n.Takes(l.Task.Type) || !e.Reach.With(n.Prefixes()).May(place) {
			continue
		}
		if e.left.add(l.Dispatcher) {
			e.Log.Warn("this node may not call a worker, and leaves it to nodes that may: "+
				"start it with "+place.Setting(),
				"type", l.Task.Type, "sender", l.Account, "host", place.Host, "other", n.Node)
		}
		return true
	}
	return false
}
