package work

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/safe"
)

// River's schema and our queue in it. Each node has one besides, for jobs that carry its own claims.
const (
	riverSchema = "river"
	riverQueue  = "postern"
)

// fetchCooldown is the least time between two looks of a process for the jobs of one queue.
const fetchCooldown = 5 * time.Millisecond

// housekeepingAfter is how long after its start a process rolls up, samples, and makes and drops days.
const housekeepingAfter = 3 * time.Second

// dispatchKind is the kind of the jobs that carry claims: inserted with what made work ready for others, or sent for.
const dispatchKind = "dispatch"

// jobs are those of the core. Its sweep is that of the systems, too.
func (e *Engine) jobs(ctx context.Context) []Job {
	alarm := func(context.Context) error { knock(e.alarm); return nil }
	later := laterThan(ctx, time.Now().Add(housekeepingAfter))
	return []Job{
		{Kind: dispatchKind, Run: func(context.Context) error { e.dispatchJob(ctx); return nil }},
		{Kind: "retry", Every: 5 * time.Second, Run: alarm},
		{Kind: "include", Every: 5 * time.Second, Run: alarm},
		{Kind: "sweep", Every: 10 * time.Second, Run: e.sweep},
		{Kind: "sample", Every: 15 * time.Second, Run: later(sparing(e.calmly(e.sample)))},
		{Kind: "rollup", Every: 5 * time.Minute, Limit: atLeisure, Run: later(e.rollUp())},
		{Kind: "partition", Every: time.Hour, Limit: atLeisure, Run: later(e.partition)},
	}
}

// laterThan returns what makes a job leave a process that has just begun to what lies there, and leave to another what
// this one, which ends with ctx, leaves undone.
func laterThan(ctx context.Context, begin time.Time) func(do func(context.Context) error) func(context.Context) error {
	return func(do func(context.Context) error) func(context.Context) error {
		return func(job context.Context) error {
			if !pause(ctx, nil, time.Until(begin)) {
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
}

// sample counts what is stuck.
func (e *Engine) sample(ctx context.Context) error {
	_, err := e.Store.Reads.SampleStuck(ctx)
	return err
}

// rollUp reaps, where the process is calm, and rolls up.
func (e *Engine) rollUp() func(context.Context) error {
	reap := e.calmly(e.reap)
	return func(ctx context.Context) error {
		reaped := reap(ctx)
		_, err := e.Store.Reads.RollUp(ctx)
		return errors.Join(reaped, err)
	}
}

// partition makes or drops days, and drops jobs that a node no longer took: no other node takes them from its queue.
func (e *Engine) partition(ctx context.Context) error {
	left := river.NewJobDeleteManyParams().
		Kinds(dispatchKind).
		Where("state = 'available' AND created_at < now() - interval '1 hour'").
		First(10_000)
	_, err := river.ClientFromContext[pgx.Tx](ctx).JobDeleteMany(ctx, left)
	return errors.Join(err, e.PartitionOnce(ctx))
}

// river makes River's client with the jobs of the core and of the systems, and has the store ring through it. start
// lets it go, which takes a few statements and at times a second; stop ends it.
func (e *Engine) river(ctx context.Context) (start func() error, stop func(), err error) {
	jobs := e.jobs(ctx)
	for _, s := range e.systems {
		jobs = append(jobs, s.Jobs...)
	}
	own := fmt.Sprintf("node_%d", e.node.Load().ID)
	client, err := newRiver(e.Store.Pool(), &river.Config{
		Queues:       map[string]river.QueueConfig{riverQueue: {MaxWorkers: 8}, own: {MaxWorkers: 2}},
		Workers:      workers(jobs, e.Loops),
		PeriodicJobs: periodic(jobs),
	}, e.Log, &e.stopping)
	if err != nil {
		return nil, nil, err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	e.doorbell.Store(newDoorbell(life, client, riverQueue))
	start = func() error {
		if err := client.Start(life); err != nil {
			return fmt.Errorf("start River: %w", db.Known(err))
		}
		e.ownBell.Store(newDoorbell(life, client, own))
		e.sendForJob()
		return nil
	}
	return start, func() { stopRiver(life, client); end() }, nil
}

// stopRiver ends a client: softly for two seconds, and hard for another.
func stopRiver(life context.Context, client *river.Client[pgx.Tx]) {
	limit, cancel := context.WithTimeout(life, 2*time.Second)
	defer cancel()
	if client.Stop(limit) != nil {
		hard, cancel := context.WithTimeout(life, time.Second)
		defer cancel()
		_ = client.StopAndCancel(hard)
	}
}

// ringJobs has jobs claim what is about to be ready: one in this process, unless it has one, and, inserted in the
// commit that makes it ready, one in another, if any of them has to hear of it.
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
func newRiver(pool *pgxpool.Pool, c *river.Config, log *slog.Logger,
	stopping *atomic.Bool) (*river.Client[pgx.Tx], error) {
	c.Schema = riverSchema
	c.Logger = slog.New(quiet{log.Handler(), stopping}).With("library", "river")
	c.FetchCooldown = fetchCooldown
	// where no notification came; a process that a doorbell wakes looks once a second anyway
	c.FetchPollInterval = 5 * time.Second
	c.CompletedJobRetentionPeriod = 5 * time.Minute
	c.DiscardedJobRetentionPeriod = 24 * time.Hour
	c.Hooks = []rivertype.Hook{&due{}}
	queues := slices.Collect(maps.Keys(c.Queues))
	client, err := river.NewClient(driver{riverpgxv5.New(pool), pool, queues}, c)
	if err != nil {
		return nil, fmt.Errorf("River: %w", err)
	}
	return client, nil
}

// due has each job be due at its insert, by any clock. River writes the time of the process into a periodic job and
// compares it with that of the database, whose clock may be behind: no job would run until it has caught up. A time in
// the options of a job would leave the job to River's scheduler, which looks every five seconds, so that a hook sets
// it. Jobs that are due go in the order of their ids.
type due struct{ river.HookDefaults }

var longDue = time.Unix(0, 0)

func (*due) InsertBegin(_ context.Context, job *rivertype.JobInsertParams) error {
	job.ScheduledAt, job.State = &longDue, rivertype.JobStateAvailable
	return nil
}

// dispatchJob carries the claims of this process, or, where another job does, leaves that a bell. A process without
// room keeps the job until it has some or a second has passed, so that the next one goes to another process. ctx is the
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
	job := river.InsertManyParams{
		Args:       jobArgs{dispatchKind},
		InsertOpts: &river.InsertOpts{Queue: queue, MaxAttempts: 1},
	}
	return &Doorbell{life: life, client: client, job: []river.InsertManyParams{job}}
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
