package work

import (
	"testing"
	"time"
)

// The longer nothing was staged, the longer until the next look, up to 50 ms; one that takes long is a tenth of the
// time.
func TestTheDrainLooksLessOftenWhenItIsQuiet(t *testing.T) {
	for _, c := range []struct{ every, took, quiet, want time.Duration }{
		{drainEvery, 0, 0, 15 * time.Millisecond},
		{drainEvery, 0, 15 * time.Second, 15 * time.Millisecond},
		{drainEvery, 0, 30 * time.Second, 30 * time.Millisecond},
		{drainEvery, 0, time.Hour, 50 * time.Millisecond},
		{drainEvery, 8 * time.Millisecond, time.Hour, 80 * time.Millisecond},
		{drainEveryElsewhere, 0, time.Hour, 100 * time.Millisecond},
	} {
		if got := drainWait(c.every, c.took, c.quiet); got != c.want {
			t.Errorf("after %s, of which %s were a look: %s", c.quiet, c.took, got)
		}
	}
}
