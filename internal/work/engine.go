package work

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/safe"
	"github.com/postern-dev/postern/internal/telemetry"
)

// Config is what every part of a process that dispatches needs. A system has its own configuration for the rest.
type Config struct {
	Store       *stores.Store
	Worker      remote.Worker
	Log         *slog.Logger
	Metrics     *telemetry.Metrics // nil for none
	Traces      *telemetry.Traces  // nil for none
	NodeName    string
	Version     string
	TTL         time.Duration // of leases; a crashed node's queues go on after it (default 10 s)
	Concurrency int           // calls in flight at most (default 1000)
	Types       []string      // types to work on; empty = all
	Retention   time.Duration // days that ended so long ago are dropped; 0: never
	Reach       *remote.Reach // what the node may call; nil: it neither tells others nor warns of what it may not
	Loops       *safe.Loops   // a loop that panics often is reported here; nil: it only begins anew
	Grace       time.Duration // how long calls may go on after Run was told to stop (default 30 s)
}

// Engine is one node that dispatches: the core, and the systems that were added to it.
type Engine struct {
	*Node
	settler *pg.Settler
	systems []System
	workers map[string]Call // those inside this process, by their URL

	mu       sync.Mutex
	inFlight int
	byType   map[int32]int  // calls in flight of dispatchers without senders
	flights  sync.WaitGroup // every goroutine that may hold a lease, or gets one
	holdings *holdings      // of these goroutines
	watch    peerWatch
	loose    loose           // queues that may be lost
	posts    postRoom        // for what is posted in this process
	sent     time.Time       // when a job that carries the claims was last sent for
	sending  bool            // its insert has not ended
	calls    context.Context // of flights: it outlives that of Run by the grace
	claims   claims
	firsts   firsts
	left     left // types whose calls this node leaves to others

	doorbell     atomic.Pointer[Doorbell] // nil until River is there
	ownBell      atomic.Pointer[Doorbell] // has a job carry the claims of this process; nil until River runs
	turn         chan struct{}            // a job has begun to carry them, or ended
	bell         chan struct{}            // there may be something to claim
	freed        chan struct{}            // a call has ended, and no transaction is known to wait for its room
	alarm        chan struct{}            // there may be an earlier timer
	ringing      atomic.Bool              // timers and systems are told in a moment
	more         atomic.Bool              // transactions wait for room or a sender
	unowned      chan error               // why it cannot go on under its node
	stopping     atomic.Bool
	housekeeping atomic.Bool  // River runs
	draining     atomic.Bool  // somebody drained this node: it claims nothing, and does everything else
	peers        atomic.Int64 // other nodes that are alive, as of the last heartbeat
	progress     atomic.Int64 // unix ms of the last claim that had nothing to complain of
	breakers     breakers     // of the addresses that this process has called

	compareEvery, lateAfter, roomAfter time.Duration // as the constants say; tests have less time
}

// New makes an engine without systems; Run starts it.
func New(c Config) *Engine {
	if c.TTL <= 0 {
		c.TTL = 10 * time.Second
	}
	if c.Concurrency <= 0 {
		c.Concurrency = 1000
	}
	if c.Grace <= 0 {
		c.Grace = 30 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{
		Node:     &Node{Config: c, born: time.Now()},
		settler:  pg.NewSettler(c.Store.Store),
		workers:  map[string]Call{},
		byType:   map[int32]int{},
		holdings: newHoldings(),
		posts:    postRoom{fullFor: map[int32]bool{}},
		turn:     make(chan struct{}, 1),
		bell:     make(chan struct{}, 1),
		freed:    make(chan struct{}, 1),
		alarm:    make(chan struct{}, 1),
		unowned:  make(chan error, 1),

		compareEvery: compareEvery,
		lateAfter:    lateAfter,
		roomAfter:    roomAfter,
	}
	e.breakers.log, e.breakers.metrics, e.breakers.bell = c.Log, c.Metrics, func() { knock(e.bell) }
	e.loose.list, e.loose.bell = map[pg.Fenced]sight{}, make(chan struct{}, 1)
	c.Store.Ring, c.Store.Doorbell = e.Ring, e.ringJobs // before anybody posts
	return e
}

// Run works until ctx ends, then stops claiming, hands back what is not in a call, gives the calls
// their grace, and returns when nothing of it runs any more. It returns an error if it could not
// start, or could not go on: a fault "database_went_back" or "node_gone", where calls are cut off at
// once and nothing is handed back, since what it holds may be another process's by now.
func (e *Engine) Run(ctx context.Context) error {
	if err := e.register(ctx); err != nil {
		return fmt.Errorf("register node %s: %w", e.NodeName, err)
	}
	e.trustFrom(time.Now())
	e.watch.steady = time.Now()
	startRiver, stopRiver, err := e.river(ctx)
	if err != nil {
		return err
	}
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	calls, cut := context.WithCancel(context.WithoutCancel(ctx)) // outlives ctx by the grace
	defer cut()
	e.calls = calls
	e.posts.full = true // until a claim has seen what waits
	e.Store.Take(e)

	var own, beats sync.WaitGroup
	beating, stopBeating := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBeating()
	beats.Go(e.Loops.Func(beating, "heartbeat", e.heartbeat))
	beats.Go(e.Loops.Func(beating, "comparison", e.compareLoop))
	beats.Go(e.Loops.Func(beating, "room", e.roomLoop))
	e.background(ctx, &own)
	// Nothing above waits for River: queues that are ready go out meanwhile.
	if err = startRiver(); err != nil {
		giveUp()
	} else {
		e.housekeeping.Store(true)
		e.Log.Info("working", "node", e.NodeName, "ttl", e.TTL.String(), "concurrency", e.Concurrency)
	}

	if why := e.awaitEnd(ctx); why != nil {
		err = why
	}
	disowned := err != nil && ctx.Err() == nil
	if disowned {
		cut()
		giveUp()
	}
	e.stopping.Store(true)
	var jobs sync.WaitGroup // they may take longer than what is handed back
	jobs.Go(safe.Func("stop River", stopRiver))
	defer jobs.Wait()
	own.Wait()
	e.claims.Lock()   // the last claim: each sees behind this lock that the engine stops
	e.claims.Unlock() //nolint:staticcheck // see above
	e.awaitCalls(cut)
	stopBeating()
	beats.Wait()
	if disowned {
		return err
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	e.handBack(last)
	return err
}

// register gives the process its row.
func (e *Engine) register(ctx context.Context) error {
	n, err := e.Store.Register(ctx, e.NodeName, e.Version, e.TTL)
	if err != nil {
		return err
	}
	n.Types = e.Types
	e.node.Store(&n)
	return nil
}

// background starts the loops of the process, which run until ctx ends; all counts them.
func (e *Engine) background(ctx context.Context, all *sync.WaitGroup) {
	begin := func(name string, f func(context.Context)) { all.Go(e.Loops.Func(ctx, name, f)) }
	begin("addresses", e.tellReach)
	begin("claims", e.claimLoop)
	begin("look back", e.lookBackLoop)
	begin("configuration", e.Store.KeepFresh)
	begin("staged rows", func(ctx context.Context) { Drain(ctx, e.Store, true, e.Log) })
	loops := []Loop{e.timers()}
	for _, s := range e.systems {
		loops = append(loops, s.Loops...)
	}
	for _, l := range loops {
		begin(l.Name, func(ctx context.Context) { e.run(ctx, l) })
	}
}

// lookBackLoop looks once a second for what became ready long ago.
func (e *Engine) lookBackLoop(ctx context.Context) {
	for pause(ctx, nil, time.Second) {
		err := e.Store.LookBack(ctx)
		if safe.Passed(ctx, err); err != nil && ctx.Err() == nil {
			e.Log.Warn("look for what became ready long ago", "error", err)
		}
	}
}

// awaitEnd waits until the engine is told to stop, or returns why it cannot go on.
func (e *Engine) awaitEnd(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-e.Store.Lost():
		return e.Store.Loss().Err()
	case err := <-e.unowned:
		return err
	}
}

// awaitCalls waits for the calls in flight: until they end, or the grace is over and they are cut off.
func (e *Engine) awaitCalls(cut func()) {
	e.mu.Lock()
	e.posts.closed = true
	e.mu.Unlock()
	landed := make(chan struct{})
	go safe.Run("landing", func() { e.flights.Wait(); close(landed) })
	select {
	case <-landed:
	case <-time.After(e.Grace):
		cut()
		<-landed
	}
}

// handBack releases what calls that were cut off left behind, and ends the node.
func (e *Engine) handBack(ctx context.Context) {
	n := *e.node.Load()
	left, err := e.Store.GiveUpAll(ctx, n)
	if err == nil {
		err = e.Store.Leave(ctx, n)
	}
	if err != nil {
		e.Log.Warn("could not hand back the leases: they are released after their TTL", "node", n.Name, "error", err)
		return
	}
	if left > 0 {
		e.Log.Info("handed back queues whose calls were cut off: the next node asks their workers first", "node", n.Name, "queues", left)
	}
}

// ringRest is how long timers and systems leave the processors and the database to a claim that the same ring brought.
const ringRest = 3 * time.Millisecond

// Ring tells the engine that there may be work, and a moment later its timers and systems.
func (e *Engine) Ring() {
	knock(e.bell)
	e.ringLater()
}

// ringLater tells timers and systems alone, once the claim has had its moment.
func (e *Engine) ringLater() {
	if !e.ringing.Swap(true) {
		time.AfterFunc(ringRest, safe.Func("ring", func() {
			e.ringing.Store(false)
			knock(e.alarm)
			for _, s := range e.systems {
				if s.Ring != nil {
					s.Ring()
				}
			}
		}))
	}
}

// knock signals on c unless a signal already waits there.
func knock(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (e *Engine) takes(typ string) bool { return pg.Node{Types: e.Types}.Takes(typ) }

// room is what the node can take now.
func (e *Engine) room() pg.Room {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.free()
}

func (e *Engine) free() pg.Room {
	used := make(map[int32]int, len(e.byType))
	for d, n := range e.byType {
		used[d] = n
	}
	total := e.Concurrency - e.inFlight
	if e.draining.Load() {
		total = 0
	}
	return pg.Room{
		Total:  total,
		Slots:  func(d *pg.Dispatcher) int { return e.slots(d) - used[d.ID] },
		Leaves: e.left.has,
		Shuns:  e.left.senders,
	}
}

// slots is how many calls of a dispatcher may be out at once.
func (e *Engine) slots(d *pg.Dispatcher) int {
	if e.workers[d.WorkerURL] != nil { // it is in this process, and judges nothing by answers of others
		return d.Slots
	}
	return e.breakers.slots(d)
}

// take counts flights in, and give one out. A lease whose queue was handed back before it came gets no flight.
func (e *Engine) take(leases []*pg.Lease) []*pg.Lease {
	held, refused := e.holdings.hold(leases)
	e.refuse(refused)
	e.flights.Add(len(held))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inFlight += len(held)
	for _, l := range held {
		if l.SenderID == 0 {
			e.byType[l.Dispatcher.ID]++
			e.breakers.begin(l.Dispatcher)
		}
	}
	return held
}

// refuse says that leases came too late: their queues were handed back, and others may call.
func (e *Engine) refuse(leases []*pg.Lease) {
	for _, l := range leases {
		e.Log.Warn("a lease came after its queue had been handed back: nothing is called", "tx", l.ID(), "queue", l.Queue, "fence", l.Fence)
	}
}

func (e *Engine) give(l *pg.Lease) {
	if e.holdings.let(l) { // its room was given to others before
		return
	}
	if e.giveOne(l) {
		knock(e.bell)
	} else {
		knock(e.freed)
	}
}

// giveOne counts a flight out, and says whether a transaction may wait for its room.
func (e *Engine) giveOne(l *pg.Lease) (waits bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inFlight--
	if l.SenderID == 0 {
		e.releaseSlot(l.Dispatcher)
	}
	return e.someoneWaits(l.Dispatcher.ID)
}

// releaseSlot frees a slot among the calls of a dispatcher without senders.
func (e *Engine) releaseSlot(d *pg.Dispatcher) {
	if e.byType[d.ID]--; e.byType[d.ID] == 0 {
		delete(e.byType, d.ID)
	}
}

// awaitRing waits for a signal on c, or for d, and for rest at the least, in which all signals are one; false is the
// end of ctx.
func awaitRing(ctx context.Context, c <-chan struct{}, d, rest time.Duration) bool {
	began := time.Now()
	if !pause(ctx, c, d) {
		return false
	}
	if rest -= time.Since(began); rest <= 0 {
		return true
	}
	if !pause(ctx, nil, rest) {
		return false
	}
	select {
	case <-c:
	default:
	}
	return true
}

// pause waits for d, for a signal on c, or for the end of ctx; false is the end.
func pause(ctx context.Context, c <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-c:
	case <-t.C:
	}
	return ctx.Err() == nil
}
