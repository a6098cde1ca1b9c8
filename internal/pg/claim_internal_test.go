package pg

import "testing"

// TestAWalkThroughTheLanesEndsWhereItBegan lets looks of 10 lanes walk through some lanes from where one before came.
func TestAWalkThroughTheLanesEndsWhereItBegan(t *testing.T) {
	for _, c := range []struct{ lanes, from, looks int32 }{
		{0, 0, 1}, {9, 0, 1}, {25, 0, 3}, {25, 10, 3}, {25, 20, 3}, {25, 25, 4}, {25, 15, 3},
	} {
		w, from, looks, seen := &laneWalk{}, c.from, int32(0), map[int32]bool{}
		for again := true; again && looks < 9; looks++ {
			cut := from + 10
			if cut >= c.lanes {
				cut = 0
			}
			for lane := from + 1; lane <= c.lanes && (cut == 0 || lane <= cut); lane++ {
				seen[lane] = true
			}
			again, from = w.further(from, cut), cut
		}
		if len(seen) != int(c.lanes) || looks != c.looks {
			t.Errorf("%d lanes from %d: %d seen in %d looks, want %d", c.lanes, c.from, len(seen), looks, c.looks)
		}
	}
}
