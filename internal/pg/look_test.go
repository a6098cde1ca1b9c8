package pg_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// Transactions that were cancelled behind a head that is in flight do not wait, though the head has not passed them.
func TestWhatWasCancelledDoesNotWait(t *testing.T) {
	t.Parallel()
	w := pgworld.New(t)
	w.Dispatcher("T", func(d *outbox.Dispatcher) { d.Slots = 10 })
	ids := w.Post("q", "T", "a", "b", "c", "d")
	w.Claim(w.Node("n"), pgworld.Everything())
	waits := func() int64 {
		t.Helper()
		n, err := w.S.Reads.Look(w.Ctx, w.ID)
		w.Must(err)
		return n.Waiting
	}
	before := waits()
	for _, id := range ids[1:3] {
		_, err := w.S.Cancel(w.Ctx, w.By, id)
		w.Must(err)
	}
	if after := waits(); before != 3 || after != 1 {
		t.Errorf("%d wait, and behind two cancels %d: want 3 and 1", before, after)
	}
}
