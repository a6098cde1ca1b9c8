package work

import (
	"context"
	"testing"
)

// A job that finds another of its kind at work goes, and keeps no worker of River waiting.
func TestWhatReadsWholeTablesIsDoneOnceAtATime(t *testing.T) {
	began, end, n := make(chan struct{}), make(chan struct{}), 0
	sample := sparing(func(context.Context) error { n++; close(began); <-end; return nil })
	done := make(chan error)
	go func() { done <- sample(t.Context()) }()
	<-began
	err := sample(t.Context())
	close(end)
	if e := <-done; err != nil || e != nil || n != 1 {
		t.Errorf("%d at once, %v, %v", n, err, e)
	}
}
