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

// River's worker claims and calls, what is there and what comes while it runs; a second one goes, and once the process stops
// none claims.
func TestADispatchJobCarriesTheClaims(t *testing.T) {
	t.Parallel()
	ctx, db, fake := t.Context(), pgtest.New(t), remotetest.NewFake(t)
	s := open(t, db)
	by := pg.By{Context: s.Context("default").ID, Actor: "test", Via: "test", Reason: "because"}
	d := outbox.DefaultDispatcher()
	d.Type, d.WorkerURL = "mint", fake.URL()
	if _, err := s.PutDispatcher(ctx, by, d, 0); err != nil {
		t.Fatal(err)
	}
	fake.Script(remotetest.Match{Op: remotetest.OpDispatch}, remotetest.Done("ok"))
	client := remote.New(remote.Config{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	t.Cleanup(client.Close)
	e := New(Config{Store: s, Worker: remote.Mux{Next: client}, NodeName: "one"})
	n, err := s.Register(ctx, "one", "test", e.TTL)
	if err != nil {
		t.Fatal(err)
	}
	e.node.Store(&n)
	e.trustFrom(time.Now())
	e.calls = ctx
	post := func(round string, alone bool) {
		t.Helper()
		var all []*pg.Submission
		for i := range 30 {
			uid := fmt.Sprintf("%s-%d", round, i)
			all = append(all, &pg.Submission{ContextID: by.Context, Queue: fmt.Sprintf("%s-%d", round, i%10), Type: "mint", UID: uid, Hash: []byte(uid), Data: json.RawMessage(`{}`)})
		}
		out, err := s.Ingest(ctx, all, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range out {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
		}
		if alone {
			<-e.bell // of the post
		}
	}
	states := func() string {
		t.Helper()
		var got string
		if err := db.Pool.QueryRow(ctx, `SELECT coalesce(string_agg(n || ' ' || state, ', ' ORDER BY state), '')
			FROM (SELECT state, count(*) n FROM postern.transactions GROUP BY state) t`).Scan(&got); err != nil {
			t.Fatal(err)
		}
		return got
	}

	eventually := func(want string) {
		t.Helper()
		got := ""
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if got = states(); got == want {
				return
			}
		}
		t.Fatalf("%s, want %s", got, want)
	}

	post("before", true)
	job, stop := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() { e.dispatchJob(job); close(over) }()
	eventually("30 DONE")
	if !e.claims.carried.Load() || len(e.turn) != 1 {
		t.Fatalf("a job that claims: carried %t, %d turns", e.claims.carried.Load(), len(e.turn))
	}
	<-e.turn
	post("while", false)
	eventually("60 DONE")
	began := time.Now()
	e.dispatchJob(ctx)
	if took := time.Since(began); took > carryFor/2 {
		t.Errorf("a second job stayed for %s", took)
	}
	stop()
	<-over
	if e.claims.carried.Load() || len(e.turn) != 1 {
		t.Fatalf("a job that has ended: carried %t, %d turns", e.claims.carried.Load(), len(e.turn))
	}

	post("stopping", true)
	e.stopping.Store(true)
	job, stop = context.WithTimeout(ctx, 200*time.Millisecond)
	defer stop()
	e.dispatchJob(job)
	if got := states(); got != "60 DONE, 30 WAITING" {
		t.Errorf("while the process stops: %s", got)
	}
}
