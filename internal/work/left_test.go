package work_test

import (
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
