package sequencer

import (
	"time"

	"github.com/postern-dev/postern/internal/backoff"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/twin"
)

// MaxRetries is the number of the transaction, else of its dispatcher, else what the worker said, else the default of
// the dispatcher (S2.9). A number below 0 counts as 0.
func MaxRetries(own *int, d *outbox.Dispatcher, worker *int) int {
	if twin.Planted("retry_after_terminal") {
		return 1000
	}
	for _, n := range []*int{own, d.Retry.MaxRetries, worker} {
		if n != nil {
			return max(*n, 0)
		}
	}
	return d.DefaultMaxRetries()
}

// RetryDelay is the wait before retry n, counted from 1: with kind "fixed" always d.Initial, else
// uniform over [0, min(cap, initial * factor^(n-1))) by chance in [0, 1); never less than least, which
// the worker named (S2.9). d is that of Dispatcher.Backoff; a cap of 0 is none.
func RetryDelay(d outbox.Retry, n int, chance float64, least time.Duration) time.Duration {
	if d.Kind == "fixed" {
		return max(d.Longest(n), least)
	}
	return max(backoff.FullJitter(d.Longest(n), chance), least)
}
