package work

import (
	"context"
	"time"

	"github.com/postern-dev/postern/internal/backoff"
	"github.com/postern-dev/postern/internal/safe"
)

// Loop does one thing again and again until its process stops. It is the shape of whatever a node does by itself: a
// row that says when, and one function that does everything that is due and returns how much that was. Tests and
// Engine.Round call that function, and no loop. To write one, copy Batches.loop (it looks at rows) or Events.lead (a
// bell wakes it).
//
// Losing a turn, or having one twice or late, must cost latency and never correctness: every node has the same loops,
// and the rows say what is left to do.
type Loop struct {
	Name string // where a panic has happened, as metrics and readiness name it
	Does string // what it does, as the log names what has failed

	// Await waits until there is something that the loop could look after; false is the end of its context. nil: there
	// always may be. Where a system is not used, its loops cost no statement.
	Await func(context.Context) bool
	// Leased has a turn left out while the node cannot trust its leases: of whatever takes something for the node.
	Leased bool

	Every time.Duration   // from the end of one turn to the next, unless the turn says otherwise
	Bell  <-chan struct{} // begins the next turn at once; nil: nothing does
	Rest  time.Duration   // the least from the end of one turn to the next, however often the bell rings

	Retry, RetryMost time.Duration // after turns that failed: the first wait, and the longest; zero: Every

	// Once is one turn. It looks at ctx between its steps, and leaves the log to the loop.
	Once func(ctx context.Context) (Turn, error)
	// End waits for what turns have begun, after the last one. nil: a turn leaves nothing behind.
	End func()
}

// Turn is what one turn of a loop has done, and what it knows of the next.
type Turn struct {
	Did  int           // how much it did or found
	Next time.Duration // when something more is due; zero: after Every; AtOnce: there is more now
	Rest time.Duration // the least until the next turn, also after an error
}

// AtOnce begins the next turn without a wait.
const AtOnce = time.Duration(-1)

// run runs a loop until ctx ends.
func (n *Node) run(ctx context.Context, l Loop) {
	if l.End != nil {
		defer l.End()
	}
	failures := 0
	for l.Await == nil || l.Await(ctx) {
		var turn Turn
		var err error
		if !l.Leased || n.trusted() {
			turn, err = l.Once(ctx)
			safe.Passed(ctx, err)
		}
		wait := l.Every
		switch {
		case err != nil:
			if ctx.Err() == nil {
				n.Log.Warn(l.Does, "error", err)
			}
			if failures++; l.Retry > 0 {
				wait = backoff.Doubling(failures, l.Retry, l.RetryMost)
			}
		case turn.Next == AtOnce:
			failures, wait = 0, 0
		case turn.Next > 0:
			failures, wait = 0, turn.Next
		default:
			failures = 0
		}
		if !awaitRing(ctx, l.Bell, max(wait, turn.Rest), l.Rest) {
			return
		}
	}
}
