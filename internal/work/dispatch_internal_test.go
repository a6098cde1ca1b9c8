package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/remotetest"
)

// soon is how long a test waits for what should come within moments: a process may get no processor for seconds.
const soon = time.Minute

// cell is an engine without running loops and jobs, with a worker that says yes.
type cell struct {
	*Engine
	t    *testing.T
	db   *pgtest.DB
	fake *remotetest.Fake
	by   db.By
}

func newCell(t *testing.T) *cell {
	t.Helper()
	c := &cell{t: t, db: pgtest.New(t), fake: remotetest.NewFake(t)}
	s := c.db.Store(t, 10)
	c.by = db.By{Context: s.Context("default").ID, Actor: "test", Via: "test", Reason: "because"}
	d := outbox.DefaultDispatcher()
	d.Type, d.WorkerURL = "mint", c.fake.URL()
	d.Retry.Initial = outbox.Duration(100 * time.Millisecond)
	if _, err := s.PutDispatcher(t.Context(), c.by, d, 0); err != nil {
		t.Fatal(err)
	}
	c.fake.Script(remotetest.Match{Op: remotetest.OpDispatch}, remotetest.Done("ok"))
	client := remote.New(remote.Config{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	t.Cleanup(client.Close)
	c.Engine = New(Config{Store: s, Worker: remote.Mux{Next: client}, NodeName: "one", TTL: time.Hour})
	n, err := s.Register(t.Context(), "one", "test", c.TTL)
	if err != nil {
		t.Fatal(err)
	}
	c.node.Store(&n)
	c.trustFrom(time.Now())
	c.calls = t.Context()
	mint := address{dispatcher: s.DispatcherOf(c.by.Context, "mint").ID}
	c.breakers.own(mint).met.Store(true) // all its calls may go out at once
	return c
}

// post posts three transactions to each of ten queues, in one commit.
func (c *cell) post(round string) {
	c.t.Helper()
	if err := c.posted(round); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cell) posted(round string) error {
	var all []*pg.Submission
	for i := range 30 {
		uid := fmt.Sprintf("%s-%d", round, i)
		all = append(all, &pg.Submission{ContextID: c.by.Context, Queue: fmt.Sprintf("%s-%d", round, i%10), Type: "mint", UID: uid, Hash: []byte(uid), Data: json.RawMessage(`{}`)})
	}
	out, err := c.Store.Ingest(c.t.Context(), all, false)
	for _, a := range out {
		err = errors.Join(err, a.Err)
	}
	return err
}

// states counts the transactions by their state.
func (c *cell) states() (got string) {
	c.t.Helper()
	if err := c.db.Pool.QueryRow(c.t.Context(), `SELECT coalesce(string_agg(n || ' ' || state, ', ' ORDER BY state), '')
		FROM (SELECT state, count(*) n FROM postern.transactions GROUP BY state) t`).Scan(&got); err != nil {
		c.t.Fatal(err)
	}
	return got
}

func (c *cell) eventually(want string) {
	c.t.Helper()
	got := ""
	for end := time.Now().Add(soon); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if got = c.states(); got == want {
			return
		}
	}
	c.t.Fatalf("%s, want %s", got, want)
}

// River's worker claims and calls, what is there and what comes while it runs; a second one goes, and once the process
// stops none claims.
func TestADispatchJobCarriesTheClaims(t *testing.T) {
	t.Parallel()
	ctx, e := t.Context(), newCell(t)
	e.post("before")
	<-e.bell // of the post
	job, stop := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() { e.dispatchJob(job); close(over) }()
	e.eventually("30 DONE")
	if !e.carried() || len(e.turn) != 1 {
		t.Fatalf("a job that claims: carried %t, %d turns", e.carried(), len(e.turn))
	}
	<-e.turn
	e.post("while")
	e.eventually("60 DONE")
	began := time.Now()
	e.dispatchJob(ctx)
	if took := time.Since(began); took > carryFor/2 {
		t.Errorf("a second job stayed for %s", took)
	}
	stop()
	<-over
	if e.carried() || len(e.turn) != 1 {
		t.Fatalf("a job that has ended: carried %t, %d turns", e.carried(), len(e.turn))
	}

	e.post("stopping")
	<-e.bell
	e.stopping.Store(true)
	job, stop = context.WithTimeout(ctx, 200*time.Millisecond)
	defer stop()
	e.dispatchJob(job)
	if got := e.states(); got != "60 DONE, 30 WAITING" {
		t.Errorf("while the process stops: %s", got)
	}
}

// The job that is at work calls the leases of posts and timers. If it ends meanwhile, the post or timer calls its own.
func TestWhatOthersLeaseIsCalledByTheJob(t *testing.T) {
	t.Parallel()
	ctx, e := t.Context(), newCell(t)
	e.Store.Take(e.Engine)
	e.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, UID: "posts-0"}, remotetest.Fail(503, "not yet"), remotetest.Done("ok"))
	atWork := func() *carrier {
		j := &carrier{make(chan []*pg.Lease), make(chan struct{})}
		e.claims.job.Store(j)
		return j
	}
	handed := func(j *carrier) []*pg.Lease {
		t.Helper()
		select {
		case leases := <-j.handed:
			return leases
		case <-time.After(soon):
			t.Fatalf("the job was handed nothing: %s", e.states())
			return nil
		}
	}

	j := atWork()
	posted := make(chan error, 1)
	go func() { posted <- e.posted("posts") }()
	leases := handed(j)
	if got, calls := e.states(), e.fake.Calls(remotetest.Match{}); got != "10 DISPATCHING, 20 WAITING" || len(leases) != 10 || len(calls) > 0 {
		t.Fatalf("%s, %d leases, %d calls, before the job had them", got, len(leases), len(calls))
	}
	e.start(ctx, leases)
	e.eventually("27 DONE, 1 RETRY, 2 WAITING")
	timers, stop := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() { e.run(timers, e.timers()); close(over) }()
	if leases = handed(j); len(leases) != 1 || leases[0].Phase != outbox.PhaseDelay {
		t.Fatalf("%d leases, %+v", len(leases), leases[0])
	}
	e.start(ctx, leases)
	e.eventually("30 DONE")
	stop()
	<-over
	if err := <-posted; err != nil {
		t.Fatal(err)
	}

	j = atWork()
	go func() { posted <- e.posted("ends") }()
	e.eventually("10 DISPATCHING, 30 DONE, 20 WAITING")
	close(j.over)
	e.eventually("60 DONE")
	if err := <-posted; err != nil {
		t.Fatal(err)
	}
	e.flights.Wait()
	if e.inFlight != 0 || len(e.byType) > 0 {
		t.Errorf("%d in flight, %v", e.inFlight, e.byType)
	}
}

// A job follows one that had anything to do, and is sent for by what finds none.
func TestAJobFollowsWhereThereWasWork(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		posts bool // take their queues
		do    func(*cell)
		jobs  int
	}{
		"idle":       {false, func(e *cell) { e.worked(func() {}) }, 0},
		"it claims":  {false, func(e *cell) { e.worked(func() { e.post("a"); e.eventually("30 DONE") }) }, 1},
		"posts hand": {true, func(e *cell) { e.worked(func() { e.post("a"); e.eventually("30 DONE") }) }, 1},
		"posts find none": {true, func(e *cell) {
			e.claims.job.Store(&carrier{make(chan []*pg.Lease), closed})
			e.post("a")
			e.eventually("30 DONE")
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newCell(t)
			bell, err := InsertOnlyDoorbell(e.Store.Pool(), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			e.ownBell.Store(bell)
			e.Store.Doorbell = nil // of the posts
			if c.posts {
				e.Store.Take(e.Engine)
			}
			c.do(e)
			for end := time.Now().Add(soon); ; time.Sleep(5 * time.Millisecond) { // its insert is not waited for
				var jobs int
				if err := e.db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM river.river_job WHERE kind = 'dispatch'`).Scan(&jobs); err != nil {
					t.Fatal(err)
				}
				e.mu.Lock()
				over := !e.sending
				e.mu.Unlock()
				if jobs == c.jobs && over {
					return
				}
				if time.Now().After(end) {
					t.Fatalf("%d jobs follow, want %d", jobs, c.jobs)
				}
			}
		})
	}
}

// closed is the end of a job.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// worked has a job at work while do runs, which takes moments, and waits for its end.
func (c *cell) worked(do func()) {
	c.t.Helper()
	over := make(chan struct{})
	go func() { c.carry(c.t.Context(), 10*time.Second); close(over) }()
	<-c.turn
	do()
	<-over
}
