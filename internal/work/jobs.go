package work

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/flows"
	"github.com/postern-dev/postern/internal/remote"
)

// How often a node looks after jobs: at once when it knows of something, else so often; and so often for tries that
// have ended lately and that the core has not heard of, while there are any. What stays so, since the core may not ask
// about it now, is looked for as all else is.
const (
	jobsEvery      = time.Second
	jobsRest       = 3 * time.Millisecond // between two turns, so that one takes what several brought
	unsettledEvery = 100 * time.Millisecond
)

// Jobs looks after jobs: it offers them to runners, brings them to their ends, and takes back what silent runners hold.
type Jobs struct {
	*Node
	bell  chan struct{}
	looks time.Time // when the next look for what was lost is due

	forgets time.Time // when it is next asked which runners are gone for good
}

// NewJobs makes what looks after jobs in the process of an engine.
func NewJobs(e *Engine) *Jobs {
	j := &Jobs{Node: e.Node, bell: make(chan struct{}, 1)}
	j.Store.Flows.Ended = func() { knock(j.bell) }
	return j
}

// System is what the engine runs of it. A process that dispatches nothing answers runners all the same: what they say
// is in rows, which the loop of another finds.
func (j *Jobs) System() System {
	return System{
		Name:    "jobs",
		Loops:   []Loop{j.loop()},
		Round:   j.round,
		Ended:   j.heard,
		Workers: map[string]Call{flow.WorkerURL: j.offer},
	}
}

// offer is the dispatch of a job.
func (j *Jobs) offer(ctx context.Context, l *pg.Lease, call remote.Call) outbox.Answer {
	return j.Store.Flows.Offer(ctx, l, call.Token())
}

// heard notes that the transaction of a job has gone on.
func (j *Jobs) heard(l *pg.Lease, a *pg.Answer) {
	if strings.HasPrefix(l.Task.Type, flow.TypePrefix) && (a.Step.State.Terminal() || a.Step.State == outbox.REVISION) {
		knock(j.bell)
	}
}

// loop is the loop of jobs.
func (j *Jobs) loop() Loop {
	return Loop{
		Name:      "jobs",
		Does:      "look after jobs",
		Await:     func(ctx context.Context) bool { return j.Store.Await(ctx, flows.Jobs) },
		Every:     jobsEvery,
		Bell:      j.bell,
		Rest:      jobsRest,
		Retry:     jobsEvery,
		RetryMost: 10 * time.Second,
		Once: func(ctx context.Context) (Turn, error) {
			n, fresh, err := j.once(ctx)
			return nextOfJobs(n, fresh, time.Until(j.looks)), err
		},
	}
}

// nextOfJobs says when the turn comes that follows one which did n and left fresh ones open. The look for all else is
// not put off by bells that ring before it.
func nextOfJobs(n, fresh int, look time.Duration) Turn {
	t := Turn{Did: n, Next: min(max(look, time.Millisecond), jobsEvery)}
	switch {
	case n > 0:
		t.Next = AtOnce
	case fresh > 0:
		t.Next = min(t.Next, unsettledEvery)
	}
	return t
}

// round does all that can be done now.
func (j *Jobs) round(ctx context.Context) (int, error) {
	j.looks = time.Time{}
	n, _, err := j.once(ctx)
	return n, err
}

// once brings jobs to their ends whose transactions have ended, and has the core ask about tries that it has not heard
// of; fresh is how many of these have ended lately. Once a second it looks for all else.
func (j *Jobs) once(ctx context.Context) (n, fresh int, err error) {
	if j.Store.QuarantinedWhole() {
		return 0, 0, nil
	}
	s := j.Store.Flows
	if n, err = s.Advance(ctx); err != nil {
		return n, 0, err
	}
	if _, fresh, err = s.Unsettled(ctx); err != nil || time.Now().Before(j.looks) {
		return n, fresh, err
	}
	j.looks = time.Now().Add(jobsEvery)
	lapsed, err := s.Lapse(ctx)
	posted, failed := s.Repost(ctx)
	if !time.Now().Before(j.forgets) {
		j.forgets = time.Now().Add(time.Hour)
		err = errors.Join(err, s.Forget(ctx))
	}
	return n + lapsed + posted, fresh, errors.Join(err, failed, s.TakeBack(ctx))
}
