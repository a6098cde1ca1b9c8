package pg_test

import (
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// A queue is handed back under the fence that was meant, by the node and the incarnation that have it, and by no
// other.
func TestNothingIsHandedBackThatWasNotMeant(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	a.flying(1, "a", "b", "c")
	meant := pg.Fenced{Queue: a.lease.ID().Queue, Fence: a.lease.Fence}
	again := a.n1
	again.Epoch++
	for name, c := range map[string]struct {
		node pg.Node
		list []pg.Fenced
	}{
		"under an older fence":        {a.n1, []pg.Fenced{{Queue: meant.Queue, Fence: meant.Fence - 1}}},
		"under a fence to come":       {a.n1, []pg.Fenced{{Queue: meant.Queue, Fence: meant.Fence + 1}}},
		"another queue":               {a.n1, []pg.Fenced{{Queue: meant.Queue - 1, Fence: meant.Fence}}},
		"by another node":             {a.n2, []pg.Fenced{meant}},
		"by another incarnation":      {again, []pg.Fenced{meant}},
		"nothing, by the one who has": {a.n1, nil},
	} {
		a.unchanged(name, func() {
			if n, _, err := a.S.GiveUp(a.Ctx, c.node, c.list); err != nil || n != 0 {
				t.Errorf("%s: %d, %v", name, n, err)
			}
		})
	}
	if n, left, err := a.S.GiveUp(a.Ctx, a.n1, []pg.Fenced{meant}); err != nil || n != 1 || len(left) > 0 {
		t.Fatalf("%d, left are %v, %v", n, left, err)
	}
	pgworld.HoldsTrue(t, a.Ctx, a.S.Pool())
	l := a.Claim(a.n2, pgworld.Everything())
	if len(l) != 1 || !l[0].Resume || l[0].ID() != a.ids[1] || l[0].Fence <= meant.Fence+1 {
		t.Fatalf("claimed as %+v", l)
	}
	a.unchanged("once more", func() {
		if n, _, err := a.S.GiveUp(a.Ctx, a.n1, []pg.Fenced{meant}); err != nil || n != 0 {
			t.Errorf("once more: %d, %v", n, err)
		}
	})
}

// The queues that a node owns are read along the key, chunk by chunk, timers and calls alike, and none of other nodes.
func TestWhatANodeOwnsIsReadByTheKey(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	var want []pg.Fenced
	for i, q := range []string{"x", "y", "z"} {
		a.Post(q, "T", q+"1")
		node := a.n1
		if i == 1 {
			node = a.n2
		}
		l := a.Claim(node, pgworld.Everything())[0]
		if i == 2 { // a delay that its node has in hand
			a.Settle(a.Answer(l, outbox.Answer{Class: outbox.ClassRetry, Code: "1", After: time.Minute}))
			a.Must(a.setTimer(a.Now))
			w, err := a.S.Wake(a.Ctx, a.n1, 10, 10)
			a.Must(err)
			l = w.Leases[0]
		}
		if i != 1 {
			want = append(want, pg.Fenced{Queue: l.ID().Queue, Fence: l.Fence})
		}
	}
	for _, chunk := range []int{1, 2, 1000} {
		var got []pg.Fenced
		for after := int64(0); ; {
			mine, next, err := a.S.Owned(a.Ctx, a.n1, after, chunk)
			a.Must(err)
			if got = append(got, mine...); next == 0 {
				break
			}
			after = next
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d at a time: %v, want %v", chunk, got, want)
		}
	}
}
