package pg_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
)

// A claim that has not committed holds the node's row: a bury waits for it, and then takes away what it took.
func TestANodeThatSomebodyBuriesWhileItClaimsKeepsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	id := w.post("q", "T", "a")[0]
	n, other := w.node("n"), w.other()
	said, waited := w.beside(func() error {
		_, _, err := w.s.Claim(w.ctx, n, everything())
		return err
	}, func() string {
		r, err := other.s.BuryNode(w.ctx, w.by, "n")
		w.must(err)
		return map[bool]string{true: "buried", false: "it was dead"}[r.Changed]
	})
	if said != "buried" || !waited {
		t.Errorf("%s, waited: %v", said, waited)
	}
	w.same(w.lines(`SELECT concat_ws(' ', phase, node_id, fence > 1) FROM postern.queue`), "DISPATCHING t")
	if l := w.claim(n, everything()); len(l) > 0 {
		t.Errorf("who was buried claimed %v", l)
	}
	if alive, err := w.s.Beat(w.ctx, n); alive || err != nil {
		t.Errorf("who was buried lives: %v", err)
	}
	n, err := w.s.Reincarnate(w.ctx, n)
	w.must(err)
	l := w.claim(n, everything())
	if len(l) != 1 || !l[0].Resume || n.Epoch != 2 || w.state(id) != outbox.DISPATCHING {
		t.Errorf("%v under epoch %d", l, n.Epoch)
	}
	w.must(w.s.Leave(w.ctx, n))
	if r, err := w.s.BuryNode(w.ctx, w.by, "n"); r.Changed || err != nil {
		t.Errorf("a dead one was buried: %+v, %v", r, err)
	}
	if _, err := w.s.DrainNode(w.ctx, w.by, "n", true); fault.CodeOf(err) != "wrong_state" {
		t.Errorf("a dead one was drained: %v", err)
	}
	if _, err := w.s.DrainNode(w.ctx, w.by, "m", true); fault.CodeOf(err) != "not_found" {
		t.Errorf("none was drained: %v", err)
	}
}
