package work

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/internal/backoff"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/safe"
)

// A quantum is how much of one queue a flight does before it looks whether others wait. Its time is that of calls:
// while a flight waits for our own commits it keeps its queue, since to give it back and claim it again are more
// commits to wait for.
const (
	quantumTasks = 64
	quantumTime  = 250 * time.Millisecond
)

// While claims follow one another and each finds a few, the next waits for more: leases that are claimed together are
// called and settled together, and half of a load is spent on three commits for one transaction.
const (
	claimRest = 4 * time.Millisecond // from one to the next
	claimFew  = 16
)

// claims is what one claim leaves to the next, and who makes them.
type claims struct {
	sync.Mutex
	job      atomic.Pointer[carrier] // hears e.bell; nil: the process's own loop does
	failures int
	few      time.Time // when the last claim began, if it found a few
}

// carrier is a job of River's that carries the claims of its process.
type carrier struct {
	handed chan []*pg.Lease // by posts and timers; it starts their calls
	over   chan struct{}    // closed when it ends
}

// carried says whether a job carries the claims of this process.
func (e *Engine) carried() bool { return e.claims.job.Load() != nil }

// carryFor is how long a job carries the claims of its process, within the minute that River gives it.
const carryFor = 50 * time.Second

// A process sends for a job at most once in sendEvery, and leaves what there is to claim to it for jobAwaited.
const (
	sendEvery  = time.Second
	jobAwaited = 50 * time.Millisecond
)

// claimLoop claims where no job does: until River has started, and where it brings none. So losing a job costs
// jobAwaited, and nothing is left undone.
func (e *Engine) claimLoop(ctx context.Context) {
	alone := func() bool { return !e.carried() }
	for {
		if !alone() {
			if !pause(ctx, e.turn, time.Second) {
				return
			}
			continue
		}
		if e.claimAll(ctx, alone) {
			e.sendForJob()
		}
		if !e.awaitWork(ctx) {
			return
		}
		select {
		case <-e.turn:
		default:
		}
		if alone() && e.jobMayCome() && !pause(ctx, e.turn, jobAwaited) {
			return
		}
		if !alone() {
			knock(e.bell) // which this loop may have heard instead of the job
		}
	}
}

// sendForJob has River bring this process a job that carries its claims. It waits for nothing: where the insert is
// slow, or fails, the loop claims.
func (e *Engine) sendForJob() {
	e.mu.Lock()
	defer e.mu.Unlock()
	bell := e.ownBell.Load()
	if bell == nil || e.sending || e.stopping.Load() || time.Since(e.sent) < sendEvery {
		return
	}
	e.sent, e.sending = time.Now(), true
	go safe.Run("doorbell", func() {
		defer func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.sending = false
		}()
		bell.insert()
	})
}

// jobMayCome says whether a job was sent for a moment ago.
func (e *Engine) jobMayCome() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Since(e.sent) < jobAwaited
}

// carry is what a job does for d: it claims what this process hears of, starts the calls of that and of what
// posts and timers have leased, and has another job follow if there was anything to do. Where another job carries
// already it leaves that a bell.
func (e *Engine) carry(ctx context.Context, d time.Duration) {
	ctx = e.Loops.In(ctx, "claims")
	j := &carrier{make(chan []*pg.Lease), make(chan struct{})}
	if !e.claims.job.CompareAndSwap(nil, j) {
		knock(e.bell)
		return
	}
	var starts sync.WaitGroup
	claimed, took := false, false
	starts.Go(safe.Func("starts", func() { took = e.startHanded(j) }))
	defer func() {
		e.claims.job.Store(nil)
		close(j.over)
		starts.Wait()
		if (claimed || took) && ctx.Err() == nil {
			e.sendForJob()
		}
		knock(e.turn)
	}()
	knock(e.turn)
	end := time.Now().Add(d)
	early := func() bool { return time.Now().Before(end) }
	for early() {
		if e.claimAll(ctx, early) {
			claimed = true
		}
		if !e.awaitWork(ctx) {
			return
		}
	}
}

// hand leaves the start of flights that are counted to the job that is at work. Where there is none, or it ends
// meanwhile, they wait for no other.
func (e *Engine) hand(calls context.Context, leases []*pg.Lease) {
	if j := e.claims.job.Load(); j != nil {
		select {
		case j.handed <- leases:
			return
		case <-j.over:
		}
	}
	e.sendForJob()
	e.start(calls, leases)
}

// startHanded starts what others have leased until the job is over, and says whether there was any.
func (e *Engine) startHanded(j *carrier) (any bool) {
	for {
		select {
		case leases := <-j.handed:
			any = true
			e.start(e.calls, leases)
		case <-j.over:
			return any
		}
	}
}

// claimAll claims while it may, until there is nothing more to claim or no room, and says whether it found anything, or
// could not look.
func (e *Engine) claimAll(ctx context.Context, may func() bool) (found bool) {
	e.claims.Lock()
	defer e.claims.Unlock()
	for may() && e.claim(ctx) {
		found = true
	}
	return found
}

// claim leases queues as far as there is room, starts a flight for each, and says whether to go on at once. e.claims is
// held.
func (e *Engine) claim(ctx context.Context) (again bool) {
	c := &e.claims
	if e.stopping.Load() {
		return false
	}
	if rest := claimRest - time.Since(c.few); rest > 0 && !pause(ctx, nil, rest) {
		return false
	}
	room := e.room()
	if room.Total < e.Concurrency/4 && e.more.Load() { // busy: calls that end together end within moments
		if !pause(ctx, nil, time.Millisecond) {
			return false
		}
		room = e.room()
	}
	if room.Total == 0 || !e.trusted() {
		e.more.Store(true)
		e.refusePosts()
		return false
	}
	began := time.Now()
	room = e.reserveForClaim()
	leases, more, err := e.lease(ctx, e.calls, room)
	e.endReservation(leases, err)
	safe.Passed(ctx, err)
	if err != nil && ctx.Err() == nil {
		c.failures++
		e.Log.Warn("claim", "error", err)
		return pause(ctx, nil, backoff.Doubling(c.failures, 50*time.Millisecond, 2*time.Second))
	}
	c.failures = 0
	if c.few = began; len(leases) == 0 || len(leases) >= claimFew || more {
		c.few = time.Time{}
	}
	e.more.Store(more)
	e.progress.Store(time.Now().UnixMilli())
	return len(leases) > 0
}

// lease claims, and starts a flight for each lease.
func (e *Engine) lease(ctx, calls context.Context, room pg.Room) (leases []*pg.Lease, more bool, err error) {
	defer e.holdings.end(e.holdings.begin())
	if err := e.first(ctx); err != nil {
		return nil, true, err
	}
	began := time.Now()
	leases, more, err = e.Store.Claim(ctx, *e.node.Load(), room)
	e.Metrics.Claimed(time.Since(began))
	leases = e.launch(calls, leases)
	e.doubt(err)
	return leases, more, err
}

// vacant is how long a claim waits for a bell when nothing but calls has ended: no transaction that the last claim
// found waits for their room, but it may have missed one that was locked, or that came while it looked.
const vacant = 20 * time.Millisecond

// awaitWork waits until it is worth to claim again, for a second at most; false is the end of ctx.
func (e *Engine) awaitWork(ctx context.Context) bool {
	idle := time.NewTimer(time.Second)
	defer idle.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-e.freed:
		return pause(ctx, e.bell, vacant)
	case <-e.bell:
	case <-idle.C:
	}
	return true
}

// launch starts a flight for each of leases that are durable, and returns those.
func (e *Engine) launch(calls context.Context, leases []*pg.Lease) []*pg.Lease {
	held := e.take(leases)
	e.start(calls, held)
	return held
}

// start is launch for flights that are counted.
func (e *Engine) start(calls context.Context, leases []*pg.Lease) {
	for _, l := range leases {
		if l.Phase == outbox.PhaseDispatching && !l.Resume {
			e.began(l)
		}
		go safe.Run("flight", func() {
			defer e.flights.Done()
			if e.flight(calls, l) {
				e.lose(*e.node.Load(), fenced(l))
			}
		})
	}
}

// flight works through a queue, and is counted out before a queue that it lost is handed back.
func (e *Engine) flight(calls context.Context, l *pg.Lease) (lost bool) {
	defer e.give(l)
	return e.workThrough(calls, l)
}

// workThrough works through a queue under one lease: call, decide, settle, go on. It ends when the settle hands
// nothing back: the queue is empty, waits, was given back, or has another owner. lost: none of these is certain, as
// after a panic.
func (e *Engine) workThrough(ctx context.Context, l *pg.Lease) (lost bool) {
	defer func() {
		if v := recover(); v != nil {
			safe.Told("flight", v)
			lost = true
		}
	}()
	done, called := 0, time.Duration(0)
	for l != nil {
		if !e.awaitTrust(ctx) || !e.holds(l) {
			return false
		}
		begun := time.Now()
		a := e.step(ctx, l)
		if a == nil { // cut off: the row says where it stands
			return false
		}
		done, called = done+1, called+time.Since(begun)
		over := done >= quantumTasks || called >= quantumTime
		a.Continue = !e.stopping.Load() && !e.draining.Load() && !(over && e.more.Load())
		a.Yield = over
		if over {
			done, called = 0, 0
		}
		out, sure := e.settle(ctx, a)
		if !sure {
			return true
		}
		if out.Fenced {
			e.Log.Warn("a late answer changed nothing: somebody else has the queue", "tx", l.ID(), "queue", l.Queue,
				"attempt", l.Attempt, "fence", l.Fence)
			return false
		}
		e.ended(l, a)
		if out.Next != nil && out.Next.Task != l.Task {
			e.began(out.Next)
		}
		l = out.Next
	}
	return false
}

// settle records an answer. It tries as long as the node lives, since nothing else can move the queue on meanwhile.
// It is not sure where the end of a commit is unknown, or an earlier try may have been committed under this very
// fence: then the rows are asked, the queue is handed back, and its next owner asks the worker before it sends
// anything.
func (e *Engine) settle(ctx context.Context, a *pg.Answer) (out pg.Settled, sure bool) {
	a.StartedAt = e.Store.Moment(a.StartedAt)
	if a.Unclear != nil {
		a.Unclear.StartedAt = e.Store.Moment(a.Unclear.StartedAt)
	}
	began := time.Now()
	for n := 1; ; n++ {
		out, err := e.settler.Settle(ctx, a)
		if err == nil {
			e.Metrics.Settled(time.Since(began))
			if out.Fenced {
				e.Metrics.Refused()
			}
			return out, !out.Fenced || n == 1
		}
		e.compareSoon()
		e.Log.Warn("settle", "tx", a.Lease.ID(), "error", err)
		code := fault.CodeOf(err)
		if code != "database_unavailable" && code != "overloaded" && !errors.Is(err, context.DeadlineExceeded) ||
			!pause(ctx, nil, backoff.Doubling(n, 50*time.Millisecond, 2*time.Second)) {
			return out, false
		}
	}
}
