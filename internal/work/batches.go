package work

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/pg/batches"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/safe"
)

// How often a node looks for processors that have something to do; where there are none, less often, and where a look
// takes long, since there are many, so that looking takes no more than a tenth of the time; every five seconds at the
// least.
const (
	tickEvery     = 50 * time.Millisecond
	tickEveryIdle = 500 * time.Millisecond
	tickEveryMost = 5 * time.Second
	tickShare     = 10
	ticksAtOnce   = 16
)

// Batches looks after batches: it ticks processors, and brings on what they execute.
type Batches struct {
	*Node
	ticking sync.Mutex // held by the one that goes through the processors
}

// NewBatches makes what looks after batches in the process of an engine.
func NewBatches(e *Engine) *Batches { return &Batches{Node: e.Node} }

// System is what the engine runs of it.
func (e *Batches) System() System {
	return System{
		Name:  "batches",
		Loops: []Loop{e.loop()},
		Jobs: []Job{{Kind: "tick", Every: 5 * time.Second, Run: func(ctx context.Context) error {
			_, err := e.TickOnce(ctx)
			return err
		}}},
	}
}

// loop ticks the processors whose time has come, and brings on what they execute (S4.4). Nodes do not share them out:
// each goes through them in an order of its own, and the second to come finds that nothing is due.
func (e *Batches) loop() Loop {
	return Loop{
		Name:      "processors",
		Does:      "tick processors",
		Await:     func(ctx context.Context) bool { return e.Store.Await(ctx, batches.Processors) },
		Every:     tickEveryIdle,
		Retry:     50 * time.Millisecond,
		RetryMost: 2 * time.Second,
		Once: func(ctx context.Context) (Turn, error) {
			n, took, err := e.tickOnce(ctx)
			turn := Turn{Did: n, Rest: min(tickShare*took, tickEveryMost)}
			if n > 0 {
				turn.Next = tickEvery
			}
			return turn, err
		},
	}
}

// TickOnce ticks and brings on every processor that has something to do, several at a time, and returns how many have
// batches; 0 while this process is doing so already.
func (e *Batches) TickOnce(ctx context.Context) (int, error) {
	n, _, err := e.tickOnce(ctx)
	return n, err
}

// tickOnce also says how long it took to look.
func (e *Batches) tickOnce(ctx context.Context) (busy int, took time.Duration, err error) {
	// two that go through the same list side by side would wait for each other's locks all the way
	if !e.ticking.TryLock() {
		return 0, 0, nil
	}
	defer e.ticking.Unlock()
	begin := time.Now()
	list, busy, err := e.Store.Batches.ProcessorsDue(ctx)
	if err != nil {
		return 0, 0, err
	}
	took = time.Since(begin)
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	errs := make(chan error, len(list))
	slots := make(chan struct{}, ticksAtOnce)
	for _, p := range list {
		slots <- struct{}{}
		go safe.Run("tick", func() {
			defer func() { <-slots }()
			errs <- safe.Try("tick", func() error { return e.tick(ctx, p) })
		})
	}
	for range list {
		if one := <-errs; one != nil {
			err = one
		}
	}
	return busy, took, err
}

func (e *Batches) tick(ctx context.Context, p batches.DueProcessor) error {
	if p.Advance {
		if err := e.Store.Batches.AdvanceProcessor(ctx, p.Context, p.Name); err != nil {
			return err
		}
	}
	// Also where an execution has just ended: its processor may tick again, which is compared behind the lock.
	out, err := e.Store.Batches.TickDue(ctx, db.By{Context: p.Context, Via: "tick"}, p.Name)
	if err == nil && out.Outcome != "" {
		e.Log.Debug("ticked", "processor", p.Name, "outcome", out.Outcome, "batch", out.Batch.ID)
	}
	return err
}
