package runner

import (
	"context"
	"fmt"
	"time"
)

// leastTTL is a tenth of what a server may be set to. With less a runner would do nothing but renew.
const leastTTL = 300 * time.Millisecond

// renewLoop keeps the runner alive at the server. It stands apart from all else, so that neither a script nor a claim
// can hold it up. Where the epoch is over it begins the next one.
func (r *Runner) renewLoop(ctx context.Context) {
	for ctx.Err() == nil {
		r.mu.Lock()
		epoch, rest := r.epoch, r.ttl/3
		r.mu.Unlock()
		if epoch == 0 {
			if err := r.register(ctx); err != nil {
				if ctx.Err() == nil {
					r.refuse(err)
				}
				return
			}
			continue
		} else if err := r.renew(ctx); err != nil && ctx.Err() == nil {
			r.log.Warn("the heartbeat was not answered", "error", err)
			r.deny(err)
			rest = min(rest, 500*time.Millisecond)
		}
		select {
		case <-ctx.Done():
		case <-r.hurry:
		case <-time.After(rest):
		}
	}
}

// renew is one heartbeat for all that is held.
func (r *Runner) renew(ctx context.Context) error {
	epoch, holds := r.holding()
	r.mu.Lock()
	limit := max(r.ttl/3, 100*time.Millisecond)
	r.mu.Unlock()
	began := time.Now()
	var answer RenewAnswer
	err := r.post(ctx, limit, path(PathRenew, r.config.Name), 0, RenewRequest{Epoch: epoch, Holds: holds}, &answer)
	switch code(err) {
	case CodeStaleEpoch, CodeNotFound:
		r.forget(epoch, err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	ttl, _ := readTTL(answer.TTL) // one that is none changes nothing
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.epoch == epoch {
		r.beat(began, ttl)
	}
	r.lose(answer.Lost, "the server gave it to another holder")
	for _, h := range answer.Stop {
		if t := r.held[h.Try]; t != nil && t.job.Fence == h.Fence {
			t.stop()
		}
	}
	return nil
}

// readTTL reads how long the server lets this runner be silent.
func readTTL(text string) (time.Duration, error) {
	ttl, err := time.ParseDuration(text)
	if err != nil || ttl < leastTTL {
		return 0, fmt.Errorf("the server answered a ttl of %.40q: want a duration of at least %s", text, leastTTL)
	}
	return ttl, nil
}

// lose kills what is not ours any more. r.mu is locked.
func (r *Runner) lose(lost []Hold, why string) {
	for _, h := range lost {
		if t := r.held[h.Try]; t != nil && t.job.Fence == h.Fence {
			t.lose(why)
		}
	}
}
