package pg_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// A probe that its node may not make goes out by another node at once. The gate stays closed, and counts no failure.
func TestAProbeThatIsLeftToAnotherNodeGoesOutAtOnce(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	a.probing()
	const failures = `SELECT gate_failures FROM postern.dispatcher WHERE type = 'T'`
	var before, after int
	a.Scan(failures, &before)
	a.dispatched("left")[0].run(a, a.S)
	out := a.Claim(a.n2, pgworld.Everything())
	if len(out) != 1 || !out[0].Probe {
		t.Errorf("the other node got %s, want a probe", leases(out))
	}
	if a.Scan(failures, &after); after != before || before == 0 {
		t.Errorf("%d failures, then %d: want as many", before, after)
	}
	pgworld.HoldsTrue(t, a.Ctx, a.S.Pool())
}
