package work_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/remotetest"
)

// A node that may not call the worker leaves it to one that may: no gate closes, and all goes out by the other.
// Once that has gone, the gate closes for the reason that names the flag.
func TestANodeWithoutTheFlagLeavesCallsToOthers(t *testing.T) {
	h := newHouse(t)
	h.fake.Script(dispatches, remotetest.Done("ok"))
	h.dispatcher("T", func(d *outbox.Dispatcher) { d.Breaker = 1 })
	may := remote.New(remote.Config{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	strict := remote.New(remote.Config{})
	t.Cleanup(may.Close)
	t.Cleanup(strict.Close)
	stop := h.engine("may", func(p *parts) { p.Worker, p.Reach = remote.Mux{Next: may}, may.Reach() })
	told := func(n int) func() bool {
		return func() bool {
			list, err := h.s.Allowances(h.ctx)
			h.must(err)
			return len(list) == n
		}
	}
	h.until("it says what it may call", told(1))
	log := &said{}
	h.engine("strict", func(p *parts) {
		p.Worker, p.Reach, p.Log = remote.Mux{Next: strict}, strict.Reach(), slog.New(slog.NewTextHandler(log, nil))
	})
	h.until("both say what they may call", told(2))
	var ids []outbox.ID
	for round := 0; round < 100 && len(log.lines("leaves it to nodes that may")) == 0; round++ {
		for q := range 10 {
			ids = append(ids, h.post(fmt.Sprint("q", q), "T", fmt.Sprint(round, "-", q))...)
		}
		time.Sleep(100 * time.Millisecond)
	}
	h.await(ids, 60*time.Second, outbox.DONE)
	if n := len(log.lines("nothing came of calls")); n != 0 || h.failures("T") != 0 {
		t.Errorf("the node that may not call closed the gate %d times, which has %d failures", n, h.failures("T"))
	}
	if n := len(log.lines("leaves it to nodes that may", "--worker-allow-cidr")); n != 1 {
		t.Errorf("%d lines say that it leaves them: want one that names the flag", n)
	}
	stop()
	h.post("q", "T", "last")
	h.until("the gate closes where no live node may call", func() bool { return h.failures("T") > 0 })
}

// A node that may not call an address leaves all that goes there to one that may, and counts no try: the polls of what
// was submitted, questions about outcomes, hooks, webhooks and the pages of sources. The other finds them soon.
func TestANodeWithoutTheFlagLeavesAllThatIsCalledToOthers(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	at := newReceiver(t)
	log := newEventLog(t)
	log.n.Store(1)
	h.dispatcher("T", nil)
	h.dispatcher("L", nil)
	h.dispatcher("H", nil)
	h.subscribe(outbox.Subscription{Name: "hear", Kind: "webhook", URL: at.URL}, bytes.Repeat([]byte("s"), 32))
	node := func(name string, allow ...netip.Prefix) byHand {
		client := remote.New(remote.Config{AllowCIDR: allow})
		t.Cleanup(client.Close)
		e := h.manual(func(p *parts) {
			p.NodeName, p.Worker, p.Reach = name, remote.Mux{Next: client}, client.Reach()
			p.Fetch, p.Webhook = client.Fetch, client.Webhook
		})
		h.exec(`UPDATE postern.node SET worker_allow_cidr = $2 WHERE name = $1`, name, []string{allow[0].String()})
		return e
	}
	may := node("may", netip.MustParsePrefix("127.0.0.0/8"))
	strict := node("strict", netip.MustParsePrefix("10.0.0.0/8"))

	h.fake.StatusDown(true)
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, Type: "T"}, remotetest.Accept("0x1"))
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, Type: "L"}, remotetest.Drop(), remotetest.Done("ok"))
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, Type: "H"}, remotetest.Done("ok"))
	ids := append(h.post("submitted", "T", "submitted"), h.post("lost", "L", "lost")...)
	ids = append(ids, h.post("done", "H", "done")...)
	h.must(may.Round(h.ctx))
	h.exec(`UPDATE postern.delivery SET state = 'pending', next_at = now(), ended_at = NULL, tries = '[]', attempts = 0`)
	h.exec(`UPDATE postern.timer SET due_at = now(), said = NULL`)
	h.source(sources(log)[0])

	const calls = `SELECT count(*) FROM (
		SELECT FROM postern.timer WHERE due_at < now() + interval '2 s' AND coalesce(said, '') NOT LIKE '%public%'
		UNION ALL SELECT FROM postern.delivery WHERE state = 'pending' AND tries = '[]' AND error IS NULL
		UNION ALL SELECT FROM postern.source WHERE failures = 0 AND node_id IS NULL) x`
	var before, left int
	h.must(h.s.Pool().QueryRow(h.ctx, calls).Scan(&before))
	h.must(strict.Round(h.ctx))
	_, err := strict.ListenOnce(h.ctx)
	h.must(err)
	h.must(h.s.Pool().QueryRow(h.ctx, calls).Scan(&left))
	if before < 5 || left != before {
		t.Errorf("of %d calls %d are left to others as they were", before, left)
	}
	h.fake.StatusDown(false)
	h.fake.IncludeAll(true)
	h.until("the other makes all calls", func() bool {
		h.must(may.Round(h.ctx))
		_, err := may.ListenOnce(h.ctx)
		h.must(err)
		var open int
		h.must(h.s.Pool().QueryRow(h.ctx, `SELECT $1 - count(*) + (
			SELECT count(*)
			FROM postern.delivery
			WHERE state = 'pending') FROM postern.outcome WHERE state = 'DONE'`, len(ids)).Scan(&open))
		return open == 0 && len(h.stored("paged")) == 1
	})
}
