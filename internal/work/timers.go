package work

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/safe"
	"github.com/postern-dev/postern/internal/sequencer"
)

// dueAtOnce is how many timers one round handles; pollsAtOnce how many hashes one status call asks about.
const (
	dueAtOnce   = 500
	pollsAtOnce = 100
)

// timers is the loop of timers: a turn when the earliest is due, when an earlier one was set, and once a second in any
// case.
func (e *Engine) timers() Loop {
	return Loop{
		Name:   "timers",
		Does:   "timers",
		Leased: true,
		Every:  time.Second,
		Bell:   e.alarm,
		Once: func(ctx context.Context) (Turn, error) {
			w, err := e.TimersOnce(ctx, e.calls)
			turn := Turn{Did: w.Due}
			switch {
			case w.Due == dueAtOnce:
				turn.Next = AtOnce
			case !w.Next.IsZero() && w.Next.Year() > 1:
				turn.Next = min(time.Second, max(w.Next.Sub(w.Now), time.Millisecond))
			}
			return turn, err
		},
	}
}

// TimersOnce handles what is due now: it has flights start for delays that ended and outcomes to ask about,
// and polls the inclusion of submitted transactions, many hashes a call.
func (e *Engine) TimersOnce(ctx, calls context.Context) (pg.Woken, error) {
	if e.Store.Rippling() {
		if _, err := e.Store.Ripple(ctx); err != nil {
			return pg.Woken{}, err
		}
	}
	if e.draining.Load() {
		return pg.Woken{}, nil
	}
	w, err := e.wake(ctx, calls)
	if err != nil {
		return w, err
	}
	if len(w.Polls) > 0 {
		e.flights.Go(safe.Func("polls", func() { e.include(calls, w.Polls) }))
	}
	return w, nil
}

// wake has flights start for what is due and needs one.
func (e *Engine) wake(ctx, calls context.Context) (pg.Woken, error) {
	defer e.holdings.end(e.holdings.begin())
	if err := e.first(ctx); err != nil {
		return pg.Woken{}, err
	}
	w, err := e.Store.Wake(ctx, *e.node.Load(), e.room().Total, dueAtOnce)
	e.doubt(err)
	if err == nil && len(w.Leases) > 0 {
		e.hand(calls, e.take(w.Leases))
	}
	return w, err
}

// include asks workers about submitted transactions, grouped by worker, type and the secret that signs the question.
func (e *Engine) include(ctx context.Context, polls []*pg.Lease) {
	until := time.Now().Add(e.TTL - e.TTL/5) // then they are anybody's again
	type group struct{ url, typ, secret string }
	groups := map[group][]*pg.Lease{}
	for _, l := range polls {
		g := group{l.WorkerURL(), l.Task.Type, string(l.Dispatcher.Secret)}
		groups[g] = append(groups[g], l)
	}
	var wg sync.WaitGroup
	limit := make(chan struct{}, 8)
	for g, list := range groups {
		for len(list) > 0 {
			n := min(len(list), pollsAtOnce)
			part := list[:n]
			list = list[n:]
			limit <- struct{}{}
			wg.Go(safe.Func("poll", func() {
				defer func() { <-limit }()
				e.poll(ctx, until, g.url, g.typ, part)
			}))
		}
	}
	wg.Wait()
}

// poll asks about one group in one call, settles what is decided and puts the rest off to its next poll.
func (e *Engine) poll(ctx context.Context, until time.Time, url, typ string, list []*pg.Lease) {
	list = slices.DeleteFunc(list, e.withheld) // their timers run on
	if len(list) == 0 {
		return
	}
	if e.left.holds(addressOf(list[0])) {
		e.putBack(ctx, list)
		return
	}
	hashes := make([]string, len(list))
	for i, l := range list {
		if h := l.Hashes(); len(h) > 0 {
			hashes[i] = h[0]
		}
	}
	started := time.Now()
	asking, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	statuses := e.Worker.StatusBatch(remote.Signed(asking, list[0].Dispatcher.Secret), url, typ, hashes)
	if asking.Err() != nil {
		return // cut off: the timers run on
	}
	if statuses[0].Refused && e.leaveToOthers(asking, list[0]) {
		e.putBack(ctx, list)
		return
	}
	var later []int64
	var delays []time.Duration
	var said []string
	for i, l := range list {
		a := &pg.Answer{Lease: l, StartedAt: started, BlockHeight: statuses[i].BlockHeight,
			Step: sequencer.Polled(l.Flight(e.maxRetries(ctx, l)), statuses[i],
				l.Dispatcher.Dispatcher, rand.Float64())}
		a.Result.Hash, a.Result.Nonce, a.Result.Done = hashes[i], statuses[i].Nonce, statuses[i].Done
		if a.Step.Err != nil {
			e.Log.Error("a decision that the machine does not know", "tx", l.ID(), "error", a.Step.Err)
			continue
		}
		if a.Step.Phase == outbox.PhaseWaitingInclusion {
			later, delays = append(later, l.ID().Queue), append(delays, time.Duration(l.Dispatcher.Inclusion.PollEvery))
			said = append(said, a.Step.Message)
			continue
		}
		e.flights.Go(safe.Func("poll", func() { // together they make one commit
			if out, ok := e.settle(ctx, a); ok && !out.Fenced {
				e.ended(l, a)
			}
		}))
	}
	if err := e.Store.Polled(ctx, later, delays, said); err != nil {
		e.Log.Warn("put off polls", "error", err)
	}
	knock(e.alarm)
}

// putBack leaves polls to nodes that may call their worker.
func (e *Engine) putBack(ctx context.Context, list []*pg.Lease) {
	var queues []int64
	var delays []time.Duration
	for _, l := range list {
		queues, delays = append(queues, l.ID().Queue), append(delays, leftAgain())
	}
	if err := e.Store.Polled(ctx, queues, delays, make([]string, len(list))); err != nil {
		e.Log.Warn("put back polls", "error", err)
	}
	knock(e.alarm)
}
