package work

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/pg"
)

// TestANodeIsBuriedOnlyWhileCommitsGoThrough sees one silent node in the ways that a hold of commits, a jump of the
// clock, a start, a freeze and a death look.
func TestANodeIsBuriedOnlyWhileCommitsGoThrough(t *testing.T) {
	const ttl = 9 * time.Second
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	silent := []pg.Peer{{ID: 1, Beats: 7, Silent: true}}
	for name, c := range map[string]struct {
		watch peerWatch
		dead  int
	}{
		"it died, and was watched":         {peerWatch{ago(time.Minute), map[int64]sighted{1: {7, ago(ttl)}}}, 1},
		"it is seen for the first time":    {peerWatch{ago(time.Minute), nil}, 0},
		"it beat a moment ago":             {peerWatch{ago(time.Minute), map[int64]sighted{1: {6, ago(ttl)}}}, 0},
		"our own commits wait":             {peerWatch{time.Time{}, map[int64]sighted{1: {7, ago(ttl)}}}, 0},
		"our own commits go through again": {peerWatch{ago(time.Second), map[int64]sighted{1: {7, ago(ttl)}}}, 0},
		"they have done so for a while":    {peerWatch{ago(ttl / 2), map[int64]sighted{1: {7, ago(ttl)}}}, 1},
		"the clock jumped behind a beat":   {peerWatch{ago(time.Minute), map[int64]sighted{1: {7, ago(1e9)}}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if dead := c.watch.silent(silent, ttl); len(dead) != c.dead {
				t.Errorf("%v are to be buried", dead)
			}
		})
	}
	for name, c := range map[string]struct {
		took, age time.Duration
		committed bool
		steady    bool // as before
	}{
		"at once":                    {0, time.Second, true, true},
		"after a while":              {2 * time.Second, time.Second, true, false},
		"not":                        {0, time.Second, false, false},
		"long after the one before":  {0, 5 * time.Second, true, false},
		"a little later than others": {time.Second, 2 * time.Second, true, true},
	} {
		t.Run("a heartbeat is committed "+name, func(t *testing.T) {
			before := ago(time.Minute)
			w := peerWatch{steady: before}
			w.beat(ago(c.took), c.age, ttl, c.committed)
			if got := w.steady.Equal(before); got != c.steady {
				t.Errorf("steady since %v", w.steady)
			}
		})
	}
}

// TestALeaseOfABuriedIncarnationCallsNobody buries a node between its claim and its calls, as a hold of commits and a
// freeze may.
func TestALeaseOfABuriedIncarnationCallsNobody(t *testing.T) {
	t.Parallel()
	e := newCell(t)
	ctx := t.Context()
	e.post("a")
	leases := e.lost(10)
	if _, err := e.Store.BuryNode(ctx, e.by, e.node.Load().Name); err != nil {
		t.Fatal(err)
	}
	before := e.node.Load().Epoch
	e.beatOnce(ctx)
	if now := e.node.Load().Epoch; now == before {
		t.Fatal("it goes on under the old epoch")
	}
	e.launch(ctx, leases)
	e.flights.Wait()
	if called := e.dispatched(); len(called) > 0 {
		t.Errorf("%v were called under leases of before", called)
	}
	e.release(ctx)
	e.working()
	e.eventually("30 DONE")
	for token, calls := range e.dispatched() {
		if calls > 1 {
			t.Errorf("%s was called %d times", token, calls)
		}
	}
}
