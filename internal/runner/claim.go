package runner

import (
	"context"
	"time"
)

// claimLoop takes jobs for the slots that are free, until ctx ends.
func (r *Runner) claimLoop(ctx context.Context) {
	for ctx.Err() == nil {
		r.mu.Lock()
		free, epoch := r.config.Slots-len(r.held), r.epoch
		r.mu.Unlock()
		rest := time.Duration(0)
		switch {
		case epoch == 0:
			rest = 100 * time.Millisecond // the other loop registers
		case free <= 0:
			rest = time.Second
		default:
			rest = r.claim(ctx, epoch, free)
		}
		if rest > 0 {
			select {
			case <-ctx.Done():
			case <-r.freed:
			case <-time.After(rest):
			}
		}
	}
}

// claim asks once, and starts what it gets. It returns how long to wait before the next claim.
func (r *Runner) claim(ctx context.Context, epoch int64, free int) time.Duration {
	_, holds := r.holding()
	began := time.Now()
	var answer ClaimAnswer
	err := r.post(ctx, r.config.Wait+10*time.Second, path(PathClaim, r.config.Name)+"?wait="+r.config.Wait.String(), 0,
		ClaimRequest{Epoch: epoch, Max: free, Holds: holds}, &answer)
	switch code(err) {
	case CodeStaleEpoch, CodeNotFound:
		r.forget(epoch, err.Error())
		return 100 * time.Millisecond
	case CodeRunnerPaused:
		r.log.Info("the runner is paused")
		return 2 * time.Second
	}
	if err != nil {
		if ctx.Err() == nil {
			r.log.Warn("the claim was not answered", "error", err)
			r.deny(err)
		}
		return time.Second
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.epoch != epoch {
		return 0 // what came belongs to an epoch that is over
	}
	r.beat(began, 0)
	if r.overdue() {
		r.log.Warn("the answer to a claim came too late: its jobs are left to the server", "jobs", len(answer.Jobs))
		return time.Second
	}
	r.lose(answer.Lost, "the server gave it to another holder")
	for _, j := range answer.Jobs {
		r.take(j)
	}
	return 0
}

// take starts a job, unless it is held already: then the answer that brought it was not lost. r.mu is locked.
func (r *Runner) take(j Job) {
	before := r.held[j.Try]
	if before != nil && before.job.Fence >= j.Fence {
		return
	}
	if before != nil {
		before.lose("the server handed it out again")
	}
	t := newTry(r, j, before)
	if l, again := r.lost[t.hold()]; again {
		t.lines.goOn(l)
	}
	r.held[j.Try] = t
	r.tries.Go(t.run)
}

// release forgets a try whose end is told, or which is lost.
func (r *Runner) release(t *try) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held[t.job.Try] == t {
		delete(r.held, t.job.Try)
	}
	if why := t.whyLost(); why != "" && r.lost != nil {
		r.lost[t.hold()] = lost{t.lines.count(), why}
	}
	select {
	case r.freed <- struct{}{}:
	default:
	}
}
