package work

import (
	"context"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/safe"
)

// heartbeat renews the node's leases ten times per TTL, and looks twice a second or as often for other nodes that do
// not, to bury them. A node that buried another releases its queues at once.
func (e *Engine) heartbeat(ctx context.Context) {
	every := min(e.TTL/10, time.Second/2)
	for {
		if e.LeaseAge() > e.TTL/10-every/2 { // this time is nearer to when it is due than the next
			e.beatOnce(ctx)
		}
		p, err := e.Store.Peers(ctx, *e.node.Load())
		if err == nil {
			e.peers.Store(int64(len(p.Others)))
			e.drain(p.Drain)
			if dead := e.watch.silent(p.Others, e.TTL); len(dead) > 0 {
				e.bury(ctx, dead)
			}
		}
		if p.Buried {
			e.beatOnce(ctx)
		}
		if !pause(ctx, nil, every) {
			return
		}
	}
}

// says is what the node tells of itself with a heartbeat.
func (e *Engine) says() pg.NodeLoad {
	e.mu.Lock()
	defer e.mu.Unlock()
	return pg.NodeLoad{Concurrency: e.Concurrency, Calls: e.inFlight}
}

func (e *Engine) bury(ctx context.Context, dead []pg.Peer) {
	if n, err := e.Store.BuryThose(ctx, dead); err != nil && ctx.Err() == nil {
		e.Log.Warn("bury", "error", err)
	} else if n > 0 {
		e.Log.Warn("buried nodes whose heartbeat had stopped", "nodes", n)
		e.release(ctx)
	}
}

func (e *Engine) beatOnce(ctx context.Context) {
	began, age := time.Now(), e.LeaseAge()
	limit, cancel := context.WithTimeout(ctx, e.TTL/2)
	defer cancel()
	n := *e.node.Load()
	alive, err := e.Store.Beat(limit, n, e.says())
	e.watch.beat(began, age, e.TTL, err == nil)
	safe.Passed(ctx, err)
	switch {
	case err != nil && ctx.Err() == nil:
		e.Log.Warn("heartbeat", "node", n.Name, "error", err)
	case err == nil && alive:
		e.trustFrom(began)
	case err == nil: // buried: what we hold is fenced; go on as a new incarnation
		back, err := e.Store.Reincarnate(limit, n)
		if fault.CodeOf(err) == "node_gone" {
			e.disown(limit, err)
		}
		if err != nil {
			return
		}
		e.Log.Warn("this node was taken for dead: its queues went to others, and its late answers change nothing",
			"node", n.Name, "epoch", back.Epoch)
		e.node.Store(&back)
		e.trustFrom(began)
	}
}

// disown ends the engine, whose node has no row any more: either it was frozen for more than a day, or the database
// went back to a time before its start, which its newest commits tell.
func (e *Engine) disown(ctx context.Context, gone error) {
	err := e.Store.Inspect(ctx)
	if err != nil && fault.CodeOf(err) != "database_went_back" {
		return // the next heartbeat asks again
	}
	if err == nil {
		err = gone
	}
	select {
	case e.unowned <- err:
	default:
	}
}

// drain makes the node hand back what it holds as its calls end and claim nothing more, or claim again.
func (e *Engine) drain(drain bool) {
	if e.draining.Swap(drain) == drain {
		return
	}
	if drain {
		e.Log.Info("draining: nothing more is claimed until somebody resumes this node", "node", e.NodeName)
		return
	}
	e.Log.Info("resumed: claiming again", "node", e.NodeName)
	e.Ring()
}

// release takes the queues of dead nodes and makes them ready to be resumed.
func (e *Engine) release(ctx context.Context) int {
	n, err := e.Store.Release(ctx)
	if err != nil && ctx.Err() == nil {
		e.Log.Warn("release", "error", err)
	}
	if n > 0 {
		e.Log.Warn("released queues of dead nodes", "queues", n)
	}
	return n
}
