package work

import (
	"testing"
	"time"
)

// A bell that rings between two looks has a turn of its own, and leaves the next look where it was: a runner that is
// silent for its ttl is found out within a second.
func TestBellsDoNotPutOffTheLookForSilentRunners(t *testing.T) {
	for _, c := range []struct {
		n, fresh int
		look     time.Duration
		want     time.Duration
	}{
		{look: jobsEvery, want: jobsEvery},
		{look: 100 * time.Millisecond, want: 100 * time.Millisecond},
		{look: -time.Second, want: time.Millisecond},
		{look: time.Hour, want: jobsEvery},
		{fresh: 1, look: jobsEvery, want: unsettledEvery},
		{fresh: 1, look: time.Millisecond, want: time.Millisecond},
		{n: 1, fresh: 1, look: jobsEvery, want: AtOnce},
	} {
		if got := nextOfJobs(c.n, c.fresh, c.look); got.Next != c.want || got.Did != c.n {
			t.Errorf("did %d, fresh %d, the look is due in %s: the next turn comes in %s, want %s", c.n, c.fresh,
				c.look, got.Next, c.want)
		}
	}
}
