package telemetry

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A sample that failed is taken again when the next is due, however long it took to fail.
func TestASampleThatFailedLateIsTakenAgainSoon(t *testing.T) {
	n := 0
	s := &sampler{from: Sources{Sample: func(ctx context.Context) (Sample, error) {
		if n++; n == 1 {
			<-time.After(400 * time.Millisecond) // sampleSpares times as long is more than sampleEvery
			return Sample{}, errors.New("too late")
		}
		return Sample{Waiting: 7}, nil
	}}}
	if _, err := s.sample(); err == nil {
		t.Error("it has not failed")
	}
	s.at = s.at.Add(-sampleEvery)
	if v, err := s.sample(); err != nil || v.Waiting != 7 {
		t.Errorf("%+v, %v", v, err)
	}
}
