package work

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/postern-dev/postern/internal/safe"
)

// River's schema and our queue in it. Each node has one besides, for jobs that carry its own claims.
const (
	riverSchema = "river"
	riverQueue  = "postern"
)

// housekeepingAfter is how long after its start a process rolls up, samples, and makes and drops days.
const housekeepingAfter = 3 * time.Second

// What River runs. dispatch is inserted with what made work ready for others, or sent for; the rest is periodic. None of them
// remembers anything: our rows do.
type (
	dispatchArgs  struct{}
	retryArgs     struct{}
	includeArgs   struct{}
	callbackArgs  struct{}
	channelArgs   struct{}
	sweepArgs     struct{}
	partitionArgs struct{}
	rollupArgs    struct{}
	tickArgs      struct{}
	sampleArgs    struct{}
)

func (dispatchArgs) Kind() string  { return "dispatch" }
func (retryArgs) Kind() string     { return "retry" }
func (includeArgs) Kind() string   { return "include" }
func (callbackArgs) Kind() string  { return "callback" }
func (channelArgs) Kind() string   { return "channel" }
func (sweepArgs) Kind() string     { return "sweep" }
func (partitionArgs) Kind() string { return "partition" }
func (rollupArgs) Kind() string    { return "rollup" }
func (tickArgs) Kind() string      { return "tick" }
func (sampleArgs) Kind() string    { return "sample" }

// river makes River's client with our workers, and has the store ring through it. start lets it go, which takes a few
// statements and at times a second; stop ends it.
func (e *Engine) river(ctx context.Context) (start func() error, stop func(), err error) {
	w := jobs{river.NewWorkers(), e.Loops}
	add(w, func(context.Context, dispatchArgs) error { e.dispatchJob(ctx); return nil })
	add(w, func(context.Context, retryArgs) error { knock(e.alarm); return nil })
	add(w, func(context.Context, includeArgs) error { knock(e.alarm); return nil })
	callbacks := sparing(func(ctx context.Context) error { _, err := e.Store.ReleaseCallbacks(ctx); return err })
	add(w, func(ctx context.Context, _ callbackArgs) error { e.Ring(); return callbacks(ctx) })
	add(w, func(ctx context.Context, _ channelArgs) error { return e.TendOnce(ctx) })
	add(w, func(ctx context.Context, _ sweepArgs) error { return e.sweep(ctx) })
	began := time.Now()
	// What keeps the house leaves a process that has just begun to what lies there, and another what this one leaves undone.
	later := func(do func(context.Context) error) func(context.Context) error {
		return func(job context.Context) error {
			if !pause(ctx, nil, time.Until(began.Add(housekeepingAfter))) {
				return river.JobSnooze(time.Second)
			}
			job, cancel := context.WithCancel(job) // it may rest between its steps when the process stops
			defer cancel()
			defer context.AfterFunc(ctx, safe.Func("job", cancel))()
			if err := do(job); err == nil || ctx.Err() == nil {
				return err
			}
			return river.JobSnooze(time.Second)
		}
	}
	reap := e.calmly(e.reap)
	rollUp := later(func(ctx context.Context) error {
		reaped := reap(ctx)
		_, err := e.Store.RollUp(ctx)
		return errors.Join(reaped, err)
	})
	sample := later(sparing(e.calmly(func(ctx context.Context) error { _, err := e.Store.SampleStuck(ctx); return err })))
	var client *river.Client[pgx.Tx]
	partition := later(func(ctx context.Context) error {
		// Jobs that a node no longer took: no other node takes them from its queue.
		left := river.NewJobDeleteManyParams().Kinds(dispatchArgs{}.Kind()).Where("state = 'available' AND created_at < now() - interval '1 hour'").First(10_000)
		_, err := client.JobDeleteMany(ctx, left)
		return errors.Join(err, e.PartitionOnce(ctx))
	})
	add(w, func(ctx context.Context, _ rollupArgs) error { return rollUp(ctx) })
	add(w, func(ctx context.Context, _ tickArgs) error { _, err := e.TickOnce(ctx); return err })
	add(w, func(ctx context.Context, _ sampleArgs) error { return sample(ctx) })
	add(w, func(ctx context.Context, _ partitionArgs) error { return partition(ctx) })
	own := fmt.Sprintf("node_%d", e.node.Load().ID)
	client, err = newRiver(e.Store.Pool(), &river.Config{
		Queues:  map[string]river.QueueConfig{riverQueue: {MaxWorkers: 8}, own: {MaxWorkers: 2}},
		Workers: w.Workers,
		PeriodicJobs: []*river.PeriodicJob{
			every(5*time.Second, retryArgs{}), every(5*time.Second, includeArgs{}), every(5*time.Second, callbackArgs{}),
			every(5*time.Second, channelArgs{}), every(5*time.Second, tickArgs{}),
			every(10*time.Second, sweepArgs{}), every(time.Hour, partitionArgs{}), every(5*time.Minute, rollupArgs{}),
			every(15*time.Second, sampleArgs{}),
		},
	}, e.Log, &e.stopping)
	if err != nil {
		return nil, nil, err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	e.doorbell.Store(newDoorbell(life, client, riverQueue))
	start = func() error {
		if err := client.Start(life); err != nil {
			return fmt.Errorf("start River: %w", err)
		}
		e.ownBell.Store(newDoorbell(life, client, own))
		e.sendForJob()
		return nil
	}
	stop = func() {
		limit, cancel := context.WithTimeout(life, 2*time.Second)
		defer cancel()
		if client.Stop(limit) != nil {
			hard, cancel := context.WithTimeout(life, time.Second)
			defer cancel()
			_ = client.StopAndCancel(hard)
		}
		end()
	}
	return start, stop, nil
}

// ringJobs has jobs claim what is about to be ready: one in this process, unless it has one, and, inserted in the commit that
// makes it ready, one in another, if any of them has to hear of it.
func (e *Engine) ringJobs(ctx context.Context, begin func(context.Context) (pgx.Tx, error)) error {
	if !e.carried() {
		e.sendForJob()
	}
	bell := e.doorbell.Load()
	if bell == nil || e.peers.Load() == 0 || len(e.Types) == 0 && e.trusted() && !e.more.Load() && !e.stopping.Load() {
		return nil // no other process would hear it, or this one has room itself
	}
	return bell.Ring(ctx, begin)
}

// sparing keeps a job that reads whole tables to a fiftieth of this process's time: the longer it took, the longer
// until it is done again, but not longer than a minute. One call at a time; a call that comes meanwhile returns at
// once.
func sparing(do func(context.Context) error) func(context.Context) error {
	var mu sync.Mutex
	var next time.Time
	return func(ctx context.Context) error {
		if !mu.TryLock() {
			return nil
		}
		defer mu.Unlock()
		began := time.Now()
		if began.Before(next) {
			return nil
		}
		err := do(ctx)
		next = time.Now().Add(restAfter(time.Since(began)))
		return err
	}
}

// restAfter is how long sparing rests after what took d.
func restAfter(d time.Duration) time.Duration { return min(49*d, time.Minute) }

// newRiver makes a client with the settings that all of ours share.
func newRiver(pool *pgxpool.Pool, c *river.Config, log *slog.Logger, stopping *atomic.Bool) (*river.Client[pgx.Tx], error) {
	c.Schema = riverSchema
	c.Logger = slog.New(quiet{log.Handler(), stopping})
	c.FetchCooldown = 5 * time.Millisecond
	c.FetchPollInterval = 5 * time.Second // where no notification came; a process that a doorbell wakes looks once a second anyway
	c.CompletedJobRetentionPeriod = 5 * time.Minute
	c.DiscardedJobRetentionPeriod = 24 * time.Hour
	client, err := river.NewClient(driver{riverpgxv5.New(pool), pool}, c)
	if err != nil {
		return nil, fmt.Errorf("River: %w", err)
	}
	return client, nil
}

func every(d time.Duration, args river.JobArgs) *river.PeriodicJob {
	return river.NewPeriodicJob(river.PeriodicInterval(d),
		func() (river.JobArgs, *river.InsertOpts) {
			return args, &river.InsertOpts{Queue: riverQueue, MaxAttempts: 1}
		}, &river.PeriodicJobOpts{RunOnStart: true})
}

// jobs are the workers of a process.
type jobs struct {
	*river.Workers
	loops *safe.Loops
}

func add[T river.JobArgs](w jobs, run func(context.Context, T) error) {
	river.AddWorker(w.Workers, &worker[T]{run: run, loops: w.loops})
}

// worker runs a function as a River worker.
type worker[T river.JobArgs] struct {
	river.WorkerDefaults[T]
	run   func(context.Context, T) error
	loops *safe.Loops
}

// Work runs a job. River brings one of each kind again and again, so that a kind that panics is a loop that does.
func (w *worker[T]) Work(ctx context.Context, job *river.Job[T]) error {
	place := "job " + job.Args.Kind()
	ctx = w.loops.In(ctx, place)
	err := safe.Try(place, func() error { return w.run(ctx, job.Args) })
	if _, ok := err.(*safe.Panic); ok { //nolint:errorlint // as Try returns it; what wraps one was noted where it was recovered
		safe.Noted(ctx)
	}
	return err
}

// dispatchJob carries the claims of this process, or, where another job does, leaves that a bell. A process without room
// keeps the job until it has some or a second has passed, so that the next one goes to another process. ctx is the
// process's: River has no reason to end a claim.
func (e *Engine) dispatchJob(ctx context.Context) {
	e.ringLater()
	for range 20 {
		if !e.carried() || e.room().Total > 0 || !pause(ctx, nil, 50*time.Millisecond) {
			break
		}
	}
	e.carry(ctx, carryFor)
}

// Doorbell has a process claim, through River.
type Doorbell struct {
	life   context.Context // of what it inserts by itself
	client *river.Client[pgx.Tx]
	job    []river.InsertManyParams
	mu     sync.Mutex
	last   time.Time
	armed  bool
}

func newDoorbell(life context.Context, client *river.Client[pgx.Tx], queue string) *Doorbell {
	return &Doorbell{life: life, client: client, job: []river.InsertManyParams{{Args: dispatchArgs{}, InsertOpts: &river.InsertOpts{Queue: queue, MaxAttempts: 1}}}}
}

// InsertOnlyDoorbell makes a doorbell for a process that accepts posts and dispatches nothing.
func InsertOnlyDoorbell(pool *pgxpool.Pool, log *slog.Logger) (*Doorbell, error) {
	client, err := newRiver(pool, &river.Config{}, log, new(atomic.Bool))
	if err != nil {
		return nil, err
	}
	return newDoorbell(context.Background(), client, riverQueue), nil
}

// doorbellEvery is the least time between two dispatch jobs of one process.
const doorbellEvery = 10 * time.Millisecond

// Ring inserts a dispatch job into what begin hands out, or, where this process inserted one a moment ago, has one
// inserted after that moment.
func (d *Doorbell) Ring(ctx context.Context, begin func(context.Context) (pgx.Tx, error)) error {
	if !d.rings() {
		return nil
	}
	tx, err := begin(ctx)
	if err != nil {
		return err
	}
	_, err = d.client.InsertManyFastTx(ctx, tx, d.job)
	return err
}

// rings says whether a job is to be inserted now; if not, one is inserted soon. It waits for no statement of others.
func (d *Doorbell) rings() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	wait := doorbellEvery - time.Since(d.last)
	if wait > 0 {
		if !d.armed {
			d.armed = true
			time.AfterFunc(wait, safe.Func("doorbell", d.insert))
		}
		return false
	}
	d.last = time.Now()
	return true
}

func (d *Doorbell) disarm() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.armed, d.last = false, time.Now()
}

// insert inserts a dispatch job in a transaction of its own.
func (d *Doorbell) insert() {
	d.disarm()
	ctx, cancel := context.WithTimeout(d.life, 5*time.Second)
	defer cancel()
	// A job that is lost here is found by the next look, a second later at most.
	_, _ = d.client.InsertManyFast(ctx, d.job)
}

// quiet keeps River's own talk out of our log: records below a warning, and complaints while it is being stopped.
type quiet struct {
	slog.Handler
	stopping *atomic.Bool
}

func (q quiet) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && !q.stopping.Load() && q.Handler.Enabled(ctx, l)
}
func (q quiet) WithAttrs(a []slog.Attr) slog.Handler {
	return quiet{q.Handler.WithAttrs(a), q.stopping}
}
func (q quiet) WithGroup(n string) slog.Handler { return quiet{q.Handler.WithGroup(n), q.stopping} }
