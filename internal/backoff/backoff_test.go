package backoff_test

import (
	"math"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/backoff"
)

func TestDoublingRisesToItsMaximumAndStaysThere(t *testing.T) {
	for n, want := range map[int]time.Duration{
		-1: 1, 0: 1, 1: 1, 2: 2, 3: 4, 4: 8, 5: 16, 6: 30, 7: 30, 1000: 30, math.MaxInt: 30,
	} {
		if got := backoff.Doubling(n, time.Second, 30*time.Second); got != want*time.Second {
			t.Errorf("try %d waits %s, want %s", n, got, want*time.Second)
		}
	}
	if got := backoff.Doubling(3, time.Minute, time.Second); got != time.Second {
		t.Errorf("a first wait above the maximum gives %s, want the maximum", got)
	}
	if got := backoff.Doubling(math.MaxInt, 1, math.MaxInt64); got != math.MaxInt64 {
		t.Errorf("the largest maximum gives %d, want it and no overflow", got)
	}
	if got := backoff.Doubling(math.MaxInt, 0, time.Second); got != 0 {
		t.Errorf("no first wait gives %s, want none", got)
	}
}

func TestFullJitterStaysBelowTheWholeDelay(t *testing.T) {
	for chance, want := range map[float64]time.Duration{0: 0, 0.25: time.Second, 0.5: 2 * time.Second} {
		if got := backoff.FullJitter(4*time.Second, chance); got != want {
			t.Errorf("chance %v gives %s, want %s", chance, got, want)
		}
	}
	if got := backoff.FullJitter(4*time.Second, math.Nextafter(1, 0)); got >= 4*time.Second+1 {
		t.Errorf("the greatest chance gives %s, want at most 4s", got)
	}
}
