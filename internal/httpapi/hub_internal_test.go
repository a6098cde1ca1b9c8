package httpapi

import (
	"testing"
	"time"
)

// A look that was slow holds nobody up: only where looks are slow, they become rare.
func TestTheHubRestsByHowSlowItsLooksAre(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, c := range []struct{ youngest, took, before, want time.Duration }{
		{0, 0, 0, 3 * ms},
		{80 * ms, ms, ms, 20 * ms},
		{200 * ms, ms, ms, 50 * ms},
		{0, 2 * ms, 2 * ms, 10 * ms},
		{0, 100 * ms, ms, 5 * ms},
		{0, ms, 100 * ms, 5 * ms},
		{0, 100 * ms, 80 * ms, 400 * ms},
	} {
		if got := rest(c.youngest, c.took, c.before); got != c.want {
			t.Errorf("the last came %v ago, the last looks took %v and %v: rests %v, want %v", c.youngest, c.took, c.before, got, c.want)
		}
	}
}
