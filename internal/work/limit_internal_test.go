package work

import (
	"testing"
	"time"
)

func TestJobsThatGoThroughALotHaveAnHour(t *testing.T) {
	if d := (&worker[rollupArgs]{}).Timeout(nil); d != time.Hour {
		t.Errorf("a roll-up has %s", d)
	}
	if d := (&worker[partitionArgs]{}).Timeout(nil); d != time.Hour {
		t.Errorf("retention has %s", d)
	}
	if d := (&worker[sweepArgs]{}).Timeout(nil); d != 0 {
		t.Errorf("a sweep has %s, want River's minute", d)
	}
}
