package work

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/backoff"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/remote"
)

// Hooks are tried for three days, at growing intervals (S2.12).
const (
	hookFirst  = time.Second
	hookMost   = time.Hour
	hookGiveUp = 72 * time.Hour
	hooksAt    = 64
)

// hookLoop delivers hooks as they come up, and looks for overdue ones once a second.
func (e *Engine) hookLoop(ctx context.Context) {
	for {
		n, err := e.HooksOnce(ctx)
		if err != nil && ctx.Err() == nil {
			e.Log.Warn("hooks", "error", err)
		}
		if n < hooksAt && !pause(ctx, e.hooks, time.Second) || ctx.Err() != nil {
			return
		}
	}
}

// HooksOnce delivers the hooks that are due and returns how many those were. A call that is cut off is
// made again after its lease.
func (e *Engine) HooksOnce(ctx context.Context) (int, error) {
	due, err := e.Store.DueDeliveries(ctx, hooksAt)
	if err != nil {
		return 0, err
	}
	var wg sync.WaitGroup
	for _, d := range due {
		wg.Go(func() { e.deliver(ctx, d) })
	}
	wg.Wait()
	return len(due), nil
}

// data is the transaction's data as the last accepted attempt left it (S2.5 row 3): its result has it.
func data(d *pg.Delivery) json.RawMessage {
	var result struct{ Data json.RawMessage }
	if json.Unmarshal(d.Result, &result) == nil && len(result.Data) > 0 {
		return result.Data
	}
	return d.Task.Data
}

func (e *Engine) deliver(ctx context.Context, d *pg.Delivery) {
	call := remote.Call{
		BaseURL: d.WorkerURL(), Type: d.Task.Type, ID: d.Task.ID, UID: d.Task.UID, Queue: d.Queue, Data: data(d), State: d.State, Hash: d.Hash,
		PostedAt: d.Task.CreatedAt, Account: d.Account, SenderWorkerURL: d.SenderURL, SenderState: string(outbox.FREE), Retries: d.Retries,
		Attempt: d.Attempt, Epoch: e.Store.Epoch(), Fence: d.Fence, Position: d.Task.ID.Seq, Fee: d.Fee, Nonce: d.Nonce,
		Timeout: 20 * time.Second, Traceparent: d.Task.Traceparent,
	}
	var problem json.RawMessage
	if d.State == outbox.FAILED {
		problem, _ = json.Marshal(map[string]string{"class": string(d.Class), "code": d.Code, "message": d.Error})
	}
	got := e.Worker.Hook(ctx, call, d.Hook, d.Result, problem, fmt.Sprintf("%s.%s", d.Task.ID, d.Hook))
	if ctx.Err() != nil {
		return
	}
	state, again := "pending", max(backoff.Doubling(d.Attempts, hookFirst, hookMost), got.After)
	switch {
	case got.OK:
		state = "delivered"
	case got.Missing:
		state = "absent"
	case d.Now.Sub(d.CreatedAt) > hookGiveUp:
		state = "failed"
	}
	if err := e.Store.Delivered(ctx, d, state, got.Body, got.Message, again); err != nil {
		e.Log.Warn("record a hook", "tx", d.Task.ID, "hook", d.Hook, "error", err)
	}
}
