package work

import (
	"context"
	"time"
)

// roomAfter is how long a queue is held before, and how often, its row is asked whether it is still the node's.
const roomAfter = 2 * time.Second

// roomLoop gives the room of calls to others whose queue an operator has taken from the node: its transaction was
// abandoned, and the call to its worker may go on until its timeout. The call is not broken off, since a late answer is
// recorded. After a burial the room is kept: a burial takes all that a node held, and the node would make twice as many
// calls as it may.
//
// Why no room is given twice: holdings.free says once of a holding that it is freed, and let says of it that it
// was. A row is read that was committed when the holding began, since a lease is held after its commit, and the
// fence in a row never comes back.
func (e *Engine) roomLoop(ctx context.Context) {
	for pause(ctx, nil, e.roomAfter) {
		if err := e.freeTaken(ctx); err != nil && ctx.Err() == nil {
			e.Log.Warn("look which calls are for queues that were taken away", "error", err)
		}
	}
}

// freeTaken looks once. Where no call takes long it asks nothing.
func (e *Engine) freeTaken(ctx context.Context) error {
	node := *e.node.Load()
	list := e.holdings.long(e.roomAfter, node.Epoch)
	if len(list) == 0 {
		return nil
	}
	gone, err := e.Store.NotOwned(ctx, node, list)
	if err != nil {
		return err
	}
	for _, f := range gone {
		l := e.holdings.free(f)
		if l == nil {
			continue
		}
		e.Log.Info("somebody took a transaction from this node while its worker is called: its room goes to others",
			"tx", l.ID(), "queue", l.Queue, "attempt", l.Attempt)
		e.giveOne(l)
		knock(e.bell)
	}
	return nil
}
