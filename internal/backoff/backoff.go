// Package backoff says how long to wait before the next try. It draws no random numbers itself: chance
// comes in, so that a test can decide it.
package backoff

import "time"

// Doubling returns first, 2*first, 4*first ... for n = 1, 2, 3 ..., never more than max (S2.9, row 5).
// An n below 1 counts as 1.
func Doubling(n int, first, max time.Duration) time.Duration {
	d := min(first, max)
	for ; n > 1 && 0 < d && d < max; n-- {
		if d > max/2 { // doubling once more would pass max, or overflow
			return max
		}
		d *= 2
	}
	return d
}

// FullJitter spreads d over [0, d) by chance in [0, 1): tries that failed together do not come back
// together (S2.9).
func FullJitter(d time.Duration, chance float64) time.Duration {
	return time.Duration(chance * float64(d))
}
