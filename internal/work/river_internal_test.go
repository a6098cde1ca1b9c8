package work

import (
	"context"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/pgtest"
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

// A process that has just begun leaves what reads all queues for later, where there are many.
func TestAProcessLooksAtAllQueuesOnceItIsCalm(t *testing.T) {
	t.Parallel()
	ctx, db := t.Context(), pgtest.New(t)
	e := New(Config{Store: db.Store(t, 10)})
	for _, c := range []struct {
		queues int
		runs   time.Duration
		want   bool
	}{{-1, 3 * time.Second, true}, {10_000, 3 * time.Second, true}, {1_000_000, 40 * time.Second, false}, {1_000_000, 50 * time.Second, true}, {50_000_000, 50 * time.Second, false}, {50_000_000, time.Minute, true}} {
		if _, err := db.Pool.Exec(ctx, `UPDATE pg_class SET reltuples = $1::int WHERE oid = 'postern.queue'::regclass`, c.queues); err != nil {
			t.Fatal(err)
		}
		e.born = time.Now().Add(-c.runs)
		if calm, err := e.calm(ctx); err != nil || calm != c.want {
			t.Errorf("after %s, with %d queues: %t, %v", c.runs, c.queues, calm, err)
		}
	}
}
