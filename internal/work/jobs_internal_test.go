package work

import (
	"testing"
	"time"
)

// A bell that rings between two looks has a turn of its own, and leaves the next look where it was: a runner that is
// silent for its ttl is found out within a second.
func TestBellsDoNotPutOffTheLookForSilentRunners(t *testing.T) {
	for _, c := range []struct {
		n, open int
		look    time.Duration
		want    time.Duration
	}{
		{look: jobsEvery, want: jobsEvery},
		{look: 100 * time.Millisecond, want: 100 * time.Millisecond},
		{look: -time.Second, want: time.Millisecond},
		{look: time.Hour, want: jobsEvery},
		{open: 1, look: jobsEvery, want: unsettledEvery},
		{open: 1, look: time.Millisecond, want: time.Millisecond},
		{n: 1, open: 1, look: jobsEvery, want: AtOnce},
	} {
		if got := nextOfJobs(c.n, c.open, c.look); got.Next != c.want || got.Did != c.n {
			t.Errorf("did %d, open %d, the look is due in %s: the next turn comes in %s, want %s", c.n, c.open, c.look,
				got.Next, c.want)
		}
	}
}
