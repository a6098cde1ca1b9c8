package work

import (
	"context"
	"time"

	"github.com/riverqueue/river"

	"github.com/postern-dev/postern/internal/safe"
)

// Job is what River has one process do, periodically or when it is sent for. It remembers nothing: our rows do. Losing,
// doubling or delaying one costs latency, never correctness.
type Job struct {
	Kind  string        // as River's rows name it; it never changes, since rows wait while a process is replaced
	Every time.Duration // zero: it is sent for
	Limit time.Duration // how long it may run; zero: a minute
	Run   func(context.Context) error
}

// atLeisure is the Limit of what goes through a whole hour or day of transactions. It has an end, since River takes
// what has none for running for ever when its process died.
const atLeisure = time.Hour

// jobArgs are the arguments of every job: none, so that a row of River's has "{}".
type jobArgs struct{ kind string }

// Kind is the kind of the job, which River's rows bear.
func (a jobArgs) Kind() string { return a.kind }

// worker runs a job as a River worker.
type worker struct {
	river.WorkerDefaults[jobArgs]
	job   Job
	loops *safe.Loops
}

// Timeout is how long River lets a job run; zero is a minute.
func (w *worker) Timeout(*river.Job[jobArgs]) time.Duration { return w.job.Limit }

// Work runs a job. River brings one of each kind again and again, so that a kind that panics is a loop that does.
func (w *worker) Work(ctx context.Context, _ *river.Job[jobArgs]) error {
	place := "job " + w.job.Kind
	ctx = w.loops.In(ctx, place)
	err := safe.Try(place, func() error { return w.job.Run(ctx) })
	if _, ok := err.(*safe.Panic); ok { //nolint:errorlint // as Try returns it; what wraps one was noted where it was recovered
		safe.Noted(ctx)
	}
	return err
}

// workers gives River a worker for each job.
func workers(list []Job, loops *safe.Loops) *river.Workers {
	all := river.NewWorkers()
	for _, j := range list {
		river.AddWorkerArgs(all, jobArgs{j.Kind}, &worker{job: j, loops: loops})
	}
	return all
}

// periodic are the jobs that River begins by itself.
func periodic(list []Job) (all []*river.PeriodicJob) {
	for _, j := range list {
		if j.Every > 0 {
			all = append(all, every(j.Every, jobArgs{j.Kind}))
		}
	}
	return all
}

func every(d time.Duration, args river.JobArgs) *river.PeriodicJob {
	return river.NewPeriodicJob(river.PeriodicInterval(d),
		func() (river.JobArgs, *river.InsertOpts) {
			return args, &river.InsertOpts{Queue: riverQueue, MaxAttempts: 1}
		}, &river.PeriodicJobOpts{RunOnStart: true})
}
