package pg_test

import (
	"slices"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// A claim that has not committed holds the node's row: a bury waits for it, and then takes away what it took.
func TestANodeThatSomebodyBuriesWhileItClaimsKeepsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	id := w.Post("q", "T", "a")[0]
	n, other := w.Node("n"), w.Other()
	said, waited := w.Beside(func() error {
		_, _, err := w.S.Claim(w.Ctx, n, pgworld.Everything())
		return err
	}, func() string {
		r, err := other.S.BuryNode(w.Ctx, w.By, "n")
		w.Must(err)
		return map[bool]string{true: "buried", false: "it was dead"}[r.Changed]
	})
	if said != "buried" || !waited {
		t.Errorf("%s, waited: %v", said, waited)
	}
	w.Same(w.Lines(`SELECT concat_ws(' ', phase, node_id, fence > 1) FROM postern.queue`), "DISPATCHING t")
	if l := w.Claim(n, pgworld.Everything()); len(l) > 0 {
		t.Errorf("who was buried claimed %v", l)
	}
	if alive, err := w.S.Beat(w.Ctx, n, pg.NodeLoad{}); alive || err != nil {
		t.Errorf("who was buried lives: %v", err)
	}
	n, err := w.S.Reincarnate(w.Ctx, n)
	w.Must(err)
	l := w.Claim(n, pgworld.Everything())
	if len(l) != 1 || !l[0].Resume || n.Epoch != 2 || w.State(id) != outbox.DISPATCHING {
		t.Errorf("%v under epoch %d", l, n.Epoch)
	}
	w.Must(w.S.Leave(w.Ctx, n))
	if r, err := w.S.BuryNode(w.Ctx, w.By, "n"); r.Changed || err != nil {
		t.Errorf("a dead one was buried: %+v, %v", r, err)
	}
	if _, err := w.S.DrainNode(w.Ctx, w.By, "n", true); fault.CodeOf(err) != "wrong_state" {
		t.Errorf("a dead one was drained: %v", err)
	}
	if _, err := w.S.DrainNode(w.Ctx, w.By, "m", true); fault.CodeOf(err) != "not_found" {
		t.Errorf("none was drained: %v", err)
	}
}

// A lever on a node and its audit row are one transaction: where the connection breaks at either, neither is there.
func TestALeverOnANodeIsAuditedOrNotPulled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Node("n")
	levers := []struct {
		verb string
		pull func() (pg.LeverResult, error)
	}{
		{"drain", func() (pg.LeverResult, error) { return w.S.DrainNode(w.Ctx, w.By, "n", true) }},
		{"resume", func() (pg.LeverResult, error) { return w.S.DrainNode(w.Ctx, w.By, "n", false) }},
		{"bury", func() (pg.LeverResult, error) { return w.S.BuryNode(w.Ctx, w.By, "n") }},
	}
	rows := func() []string {
		return w.Lines(`SELECT concat_ws(' ', 'node', draining, epoch, dead_at IS NOT NULL) FROM postern.node WHERE name = 'n'
			UNION ALL SELECT concat_ws(' ', 'audit', action, count(*)) FROM postern.audit WHERE object = '/nodes/n' GROUP BY action ORDER BY 1`)
	}
	for _, l := range levers {
		before := rows()
		for _, at := range [][2]string{{"UPDATE", "postern.node"}, {"INSERT", "postern.audit"}} {
			mend := w.dies(at[0], at[1])
			if _, err := l.pull(); err == nil {
				t.Errorf("%s: the session ended at the %s of %s, and it was done", l.verb, at[0], at[1])
			}
			mend()
			if after := rows(); !slices.Equal(after, before) {
				t.Errorf("%s: the session ended at the %s of %s, and half of it is there: %v, before %v",
					l.verb, at[0], at[1], after, before)
			}
		}
		if r, err := l.pull(); err != nil || !r.Changed {
			t.Errorf("%s: %+v, %v", l.verb, r, err)
		}
		if !slices.Contains(rows(), "audit "+l.verb+" 1") {
			t.Errorf("%s left %v", l.verb, rows())
		}
	}
}
