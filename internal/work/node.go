package work

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/internal/pg"
)

// Node is what the engine and the systems of one process share: its configuration, the row that it has in the database,
// and whether it may trust its leases.
type Node struct {
	Config
	node atomic.Pointer[pg.Node]
	beat atomic.Int64 // when the last heartbeat that succeeded began, on our monotonic clock
	born time.Time    // the zero of that clock
}

// trustFrom notes that a heartbeat which began at t has succeeded.
func (n *Node) trustFrom(t time.Time) { n.beat.Store(int64(t.Sub(n.born))) }

// trusted says whether our leases certainly hold: no other node can have buried us yet. The margin is
// what a call that starts now needs to reach the worker before somebody else could ask about it.
func (n *Node) trusted() bool { return n.LeaseAge() < n.TTL-n.TTL/5 }

// awaitTrust waits until our leases certainly hold; false is the end of ctx.
func (n *Node) awaitTrust(ctx context.Context) bool {
	for !n.trusted() {
		if !pause(ctx, nil, 20*time.Millisecond) {
			return false
		}
	}
	return ctx.Err() == nil
}

// holds says whether a lease is of this incarnation of the node. After a burial the queue is, or will be, another's,
// however well the new incarnation may be trusted. It is asked behind awaitTrust: the new incarnation is stored
// before its first heartbeat counts.
func (n *Node) holds(l *pg.Lease) bool { return l.Epoch == 0 || l.Epoch == n.node.Load().Epoch }

// LeaseAge is how old the heartbeat is that reached the database last.
func (n *Node) LeaseAge() time.Duration {
	return time.Since(n.born) - time.Duration(n.beat.Load())
}
