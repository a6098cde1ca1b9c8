package httpapi

import (
	"testing"
	"time"
)

func TestAPaceLetsThroughWhatASecondHolds(t *testing.T) {
	p, now := newPace(4), time.Unix(1_000_000, 0)
	for i := range 4 {
		if wait := p.take("a", now); wait != 0 {
			t.Errorf("the %d. at once waits %s", i+1, wait)
		}
	}
	if wait := p.take("a", now); wait != 250*time.Millisecond {
		t.Errorf("the fifth waits %s", wait)
	}
	if wait := p.take("b", now); wait != 0 {
		t.Errorf("another key waits %s", wait)
	}
	if wait := p.take("a", now.Add(250*time.Millisecond)); wait != 0 {
		t.Errorf("after the wait it still waits %s", wait)
	}
	if wait := p.take("a", now.Add(time.Hour)); wait != 0 {
		t.Errorf("after an hour it waits %s", wait)
	}
}
