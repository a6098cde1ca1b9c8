package sequencer

import (
	"math"
	"time"

	"github.com/postern-dev/postern/internal/backoff"
	"github.com/postern-dev/postern/internal/outbox"
)

// MaxRetries is the number of the transaction, else of its dispatcher, else what the worker said, else
// 2 (S2.9). A number below 0 counts as 0.
func MaxRetries(own, dispatcher, worker *int) int {
	for _, n := range []*int{own, dispatcher, worker} {
		if n != nil {
			return max(*n, 0)
		}
	}
	return outbox.DefaultMaxRetries
}

// RetryDelay is the wait before retry n, counted from 1: with kind "fixed" always d.Initial, else
// uniform over [0, min(cap, initial * factor^(n-1))) by chance in [0, 1); never less than least, which
// the worker named (S2.9). A cap of 0 is none.
func RetryDelay(d outbox.Retry, n int, chance float64, least time.Duration) time.Duration {
	if d.Kind == "fixed" {
		return max(time.Duration(d.Initial), least)
	}
	most := float64(d.Initial) * math.Pow(d.Factor, float64(max(n, 1)-1))
	limit := float64(math.MaxInt64 / 2)
	if d.Cap > 0 {
		limit = float64(d.Cap)
	}
	if !(most <= limit) { // also NaN and infinity
		most = limit
	}
	return max(backoff.FullJitter(time.Duration(most), chance), least)
}
