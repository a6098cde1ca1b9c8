package work

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/riverqueue/river"

	"github.com/postern-dev/postern/internal/pgtest"
)

// A job may be begun as soon as it is committed, and does not wait for River's scheduler, which looks every five
// seconds. A process is ready while a job waits for a moment: the time in its row does not say for how long it has
// waited.
func TestJobsMayBeginAtOnce(t *testing.T) {
	t.Parallel()
	ctx, db := t.Context(), pgtest.New(t)
	bell, err := InsertOnlyDoorbell(db.Pool, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	bell.insert()
	sweep := &river.InsertOpts{Queue: riverQueue, MaxAttempts: 1}
	if _, err := bell.client.Insert(ctx, jobArgs{"sweep"}, sweep); err != nil {
		t.Fatal(err)
	}
	var states string
	err = db.Pool.QueryRow(ctx,
		`SELECT string_agg(kind || ' ' || state, ', ' ORDER BY id) FROM river.river_job`).Scan(&states)
	if err != nil || states != "dispatch available, sweep available" {
		t.Errorf("the jobs are %q, %v", states, err)
	}
	e := New(Config{Store: db.Store(t, 2)})
	e.housekeeping.Store(true)
	if c := e.checkJobs(ctx); !c.OK {
		t.Errorf("with a job of a moment ago: %s", c.Detail)
	}
}

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
	}{{-1, 3 * time.Second, true}, {10_000, 3 * time.Second, true}, {1_000_000, 40 * time.Second, false},
		{1_000_000, 50 * time.Second, true}, {50_000_000, 50 * time.Second, false}, {50_000_000, time.Minute, true}} {
		if _, err := db.Pool.Exec(ctx,
			`UPDATE pg_class SET reltuples = $1::int WHERE oid = 'postern.queue'::regclass`, c.queues); err != nil {
			t.Fatal(err)
		}
		e.born = time.Now().Add(-c.runs)
		if calm, err := e.calm(ctx); err != nil || calm != c.want {
			t.Errorf("after %s, with %d queues: %t, %v", c.runs, c.queues, calm, err)
		}
	}
}
