package work_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remotetest"
)

func TestEverythingGoesOutOnceAndInOrder(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("T", func(d *outbox.Dispatcher) { d.Pool = "p" })
	h.sender("p", "a1", "a2", "a3")
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch}, remotetest.Done(map[string]any{"ok": true}))
	h.engine("n1", nil)
	var ids []outbox.ID
	for q := range 5 {
		for i := range 20 {
			ids = append(ids, h.post(fmt.Sprintf("q%d", q), "T", fmt.Sprintf("q%d-%d", q, i))...)
		}
	}
	h.await(ids, 20*time.Second, outbox.DONE)
	last := map[string]int64{}
	calls := h.fake.Calls(remotetest.Match{Op: remotetest.OpDispatch})
	for _, c := range calls {
		if c.Position <= last[c.Queue] {
			t.Errorf("queue %s: position %d after %d", c.Queue, c.Position, last[c.Queue])
		}
		last[c.Queue] = c.Position
	}
	if len(calls) != 100 {
		t.Errorf("%d calls for 100 transactions", len(calls))
	}
}
