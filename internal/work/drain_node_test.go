package work_test

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remotetest"
)

// A node that is drained hands back what it holds and claims nothing more, until it is resumed; it lives on.
func TestADrainedNodeHandsBackAndClaimsNothingUntilItIsResumed(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("T", nil)
	h.fake.Script(dispatches, remotetest.Done("ok"))
	j := &journal{}
	h.engine("n1", j.at(slog.LevelInfo))
	said := func(what string) func() bool {
		return func() bool {
			return slices.ContainsFunc(j.lines(t), func(l map[string]any) bool { return l["msg"] == what })
		}
	}
	h.until("it works", said("working"))
	var uids []string
	for i := range 300 {
		uids = append(uids, fmt.Sprint("a", i))
	}
	ids := h.post("q", "T", uids...)
	r, err := h.s.DrainNode(h.ctx, h.by, "n1", true)
	h.must(err)
	if !r.Changed || !r.Pending {
		t.Errorf("%+v", r)
	}
	h.until("it has heard", said("draining: nothing more is claimed until somebody resumes this node"))
	h.until("it has handed back", func() bool {
		var owned int
		h.must(h.s.Pool().QueryRow(h.ctx, `SELECT count(*) FROM postern.queue WHERE node_id IS NOT NULL`).Scan(&owned))
		return owned == 0
	})
	ids = append(ids, h.post("q", "T", "b")...)
	why, err := h.s.Reads.Why(h.ctx, h.by.Context, ids[len(ids)-1])
	h.must(err)
	if b := why.Blockers[len(why.Blockers)-1]; b.Kind != "no_live_node" || len(b.Levers) != 1 ||
		b.Levers[0].Path != "/nodes/n1/resume" {
		t.Errorf("%+v", b)
	}
	called := len(h.fake.Calls(dispatches))
	stop := h.engine("n2", nil)
	h.await(ids, 20*time.Second, outbox.DONE)
	stop()
	if n := len(h.fake.Calls(dispatches)); n != len(ids) || called == n {
		t.Errorf("%d calls, %d of them before there was another node; want %d", n, called, len(ids))
	}
	if _, err = h.s.DrainNode(h.ctx, h.by, "n1", false); err != nil {
		t.Error(err)
	}
	h.until("it goes on", said("resumed: claiming again"))
	h.await(h.post("q", "T", "c"), 20*time.Second, outbox.DONE)
	if n, err := h.s.Node(h.ctx, "n1"); err != nil || n.State != "live" || n.Epoch != 1 || n.Draining {
		t.Errorf("%+v, %v", n, err)
	}
}
