package work

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/remotetest"
)

// cell is an engine of which nothing runs by itself, with a worker that says yes.
type cell struct {
	*Engine
	t    *testing.T
	db   *pgtest.DB
	fake *remotetest.Fake
	by   pg.By
}

func newCell(t *testing.T) *cell {
	t.Helper()
	c := &cell{t: t, db: pgtest.New(t), fake: remotetest.NewFake(t)}
	s := open(t, c.db)
	c.by = pg.By{Context: s.Context("default").ID, Actor: "test", Via: "test", Reason: "because"}
	d := outbox.DefaultDispatcher()
	d.Type, d.WorkerURL = "mint", c.fake.URL()
	if _, err := s.PutDispatcher(t.Context(), c.by, d, 0); err != nil {
		t.Fatal(err)
	}
	c.fake.Script(remotetest.Match{Op: remotetest.OpDispatch}, remotetest.Done("ok"))
	client := remote.New(remote.Config{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	t.Cleanup(client.Close)
	c.Engine = New(Config{Store: s, Worker: remote.Mux{Next: client}, NodeName: "one"})
	n, err := s.Register(t.Context(), "one", "test", c.TTL)
	if err != nil {
		t.Fatal(err)
	}
	c.node.Store(&n)
	c.trustFrom(time.Now())
	c.calls = t.Context()
	return c
}

// post posts three transactions to each of ten queues, in one commit.
func (c *cell) post(round string) {
	c.t.Helper()
	var all []*pg.Submission
	for i := range 30 {
		uid := fmt.Sprintf("%s-%d", round, i)
		all = append(all, &pg.Submission{ContextID: c.by.Context, Queue: fmt.Sprintf("%s-%d", round, i%10), Type: "mint", UID: uid, Hash: []byte(uid), Data: json.RawMessage(`{}`)})
	}
	out, err := c.Store.Ingest(c.t.Context(), all, false)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, a := range out {
		if a.Err != nil {
			c.t.Fatal(a.Err)
		}
	}
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
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if got = c.states(); got == want {
			return
		}
	}
	c.t.Fatalf("%s, want %s", got, want)
}

// River's worker claims and calls, what is there and what comes while it runs; a second one goes, and once the process stops
// none claims.
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

// What a post leases is called by the job that is at work, or, where that ends meanwhile, by whoever posted.
func TestWhatPostsLeaseIsCalledByTheJob(t *testing.T) {
	t.Parallel()
	ctx, e := t.Context(), newCell(t)
	e.Store.Take(e.Engine)
	for _, ends := range []bool{false, true} {
		j := &carrier{make(chan []*pg.Lease), make(chan struct{})}
		e.claims.job.Store(j)
		posted := make(chan struct{})
		go func() { defer close(posted); e.post(fmt.Sprint("ends-", ends)) }()
		if ends {
			e.eventually("10 DISPATCHING, 30 DONE, 20 WAITING")
			close(j.over)
			e.eventually("60 DONE")
		} else {
			leases := <-j.handed
			if got := e.states(); got != "10 DISPATCHING, 20 WAITING" || len(leases) != 10 || len(e.fake.Calls(remotetest.Match{})) > 0 {
				t.Fatalf("%s, %d leases, %d calls, before the job had them", got, len(leases), len(e.fake.Calls(remotetest.Match{})))
			}
			e.start(ctx, leases)
			e.eventually("30 DONE")
		}
		<-posted
	}
	e.flights.Wait()
	if e.flying != 0 || len(e.byType) > 0 {
		t.Errorf("%d in flight, %v", e.flying, e.byType)
	}
}
