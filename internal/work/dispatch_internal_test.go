package work

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/remotetest"
)

// River's worker claims and calls; where the process is claiming already, it leaves a bell, and once the process stops, nothing.
func TestADispatchJobClaimsABatch(t *testing.T) {
	t.Parallel()
	ctx, db, fake := t.Context(), pgtest.New(t), remotetest.NewFake(t)
	pool, err := pg.Connect(ctx, db.URL, 10)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s, err := pg.Open(ctx, pool, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	by := pg.By{Context: s.Context("default").ID, Actor: "test", Via: "test", Reason: "because"}
	d := outbox.DefaultDispatcher()
	d.Type, d.WorkerURL = "mint", fake.URL()
	if _, err = s.PutDispatcher(ctx, by, d, 0); err != nil {
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
	post := func(round string) {
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
		<-e.bell // of the post
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

	post("claimed")
	e.dispatchJob(ctx)
	e.flights.Wait()
	if got := states(); got != "30 DONE" {
		t.Errorf("after a job: %s", got)
	}

	post("left")
	e.claims.Lock()
	e.dispatchJob(ctx)
	if got := states(); got != "30 DONE, 30 WAITING" || len(e.bell) != 1 {
		t.Errorf("beside a claim: %s, %d bells", got, len(e.bell))
	}
	e.claims.Unlock()

	e.stopping.Store(true)
	e.dispatchJob(ctx)
	if got := states(); got != "30 DONE, 30 WAITING" {
		t.Errorf("while the process stops: %s", got)
	}
}
