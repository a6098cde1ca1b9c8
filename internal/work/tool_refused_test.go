package work_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg/events"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/remotetest"
)

// A node that may not call a tool costs its events no try, however often it finds them: a node that may calls it, and
// until there is one they wait.
func TestAToolThatANodeMayNotCallCostsItsEventsNoTry(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.workflow(2, nil)
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch}, remotetest.Done("ok"))
	h.tool("xyz.labs.add@1", func(string, int) (int, string) { return 200, `{"ok": {"sum": 1}}` })
	log := newEventLog(t)
	log.n.Store(1)
	v := sources(log)[0]
	v.MaxRetries = 1
	h.source(v)
	strict := remote.New(remote.Config{})
	t.Cleanup(strict.Close)
	may := withTools(h)
	stop := h.engine("strict", func(c *parts) {
		may(c)
		c.Tools = strict
	})
	h.within("it was refused three times", func() bool {
		var n int
		h.must(h.s.Pool().QueryRow(h.ctx, `SELECT count(*)
			FROM postern.attempt
			WHERE code = 'address_refused'`).Scan(&n))
		return n >= 3
	})
	list, err := h.s.Events.Events(h.ctx, h.by.Context, events.EventFilter{Limit: 10})
	h.must(err)
	if len(list) != 1 || list[0].Status == leader.EventDead || list[0].Retried != 0 {
		t.Errorf("%+v, want one event that waits and has used no try", list)
	}
	stop()
	h.engine("may", may)
	for _, e := range h.ends(1) {
		if e.Status != leader.EventSuccessful || e.Retried != 0 {
			t.Errorf("%s after %d tries: %s", e.Status, e.Retried, e.Error)
		}
	}
}
