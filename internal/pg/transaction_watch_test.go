package pg_test

import (
	"slices"
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// Ended tells of each end that Watch would show. It leaves out a transaction that still waits, and says of a moved one
// that it has to be looked for.
func TestEndsThatAreWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	ids := w.Post("p", "T", "done", "cancelled", "moved", "waits")
	w.cancelled("cancelled")
	moved := w.MoveTo("moved", "q", nil)
	n := w.Node("n")
	for _, l := range w.Claim(n, pgworld.Everything()) {
		if l.ID() == ids[0] {
			a := w.Answer(l, pgworld.Done())
			a.Continue = false
			w.Settle(a)
		}
	}
	never := outbox.ID{Queue: 99999, Seq: 1, Day: ids[0].Day, Salt: ids[0].Salt}
	ended, elsewhere, err := w.S.Ended(w.Ctx, append(slices.Clone(ids), moved, never))
	w.Must(err)
	if len(ended) != 2 || !ended[ids[0]] || !ended[ids[1]] {
		t.Errorf("%v have ended, want %v and %v", ended, ids[0], ids[1])
	}
	if !slices.Equal(elsewhere, ids[2:3]) {
		t.Errorf("%v are elsewhere, want %v", elsewhere, ids[2])
	}
	for i, id := range append(slices.Clone(ids), moved, never) {
		if open, err := w.S.Open(w.Ctx, w.ID, id); err != nil || open != (id == ids[3] || id == moved) {
			t.Errorf("%d is open: %v, %v", i, open, err)
		}
		if open, err := w.S.Open(w.Ctx, w.ID+1, id); err != nil || open {
			t.Errorf("%d is open in another context: %v, %v", i, open, err)
		}
	}
	seen, err := w.S.Watch(w.Ctx, ids)
	w.Must(err)
	for i, id := range ids {
		if tx := seen[id]; tx == nil || tx.State.Terminal() != ended[id] {
			t.Errorf("Watch shows %+v at %d, ended: %v", tx, i, ended[id])
		}
	}
}
