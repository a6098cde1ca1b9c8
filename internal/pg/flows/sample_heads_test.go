package flows_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// A job that its runner has had for hours, one that waits for a runner, and one that waits for its prerequisite are no
// heads that stand: an alert on heads that are not included would ring for each long job. One that waits for a chain
// is.
func TestJobsAreNoHeadsThatAreNotIncluded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("a")
	w.post(0)
	w.one("a")
	w.post(0)
	stands := func() float64 {
		v, err := w.S.Reads.TakeSample(w.Ctx)
		w.Must(err)
		return v.OldestHeads[string(outbox.WAITING_INCLUSION)]
	}
	w.Later(3 * time.Hour)
	var n int
	w.Scan(`SELECT count(*) FROM postern.queue WHERE phase = 'WAITING_INCLUSION'`, &n)
	if age := stands(); n != 2 || age != 0 {
		t.Errorf("of %d jobs the oldest stands for %v s, want 2, which do not stand", n, age)
	}
	w.Dispatcher("chain", nil)
	w.Beats(w.node, pg.NodeLoad{})
	w.Post("q", "chain", "c")
	w.Settle(w.Answer(w.Claim(w.node, pgworld.Everything())[0], pgworld.Hashed()))
	w.Later(2 * time.Hour)
	if age := stands(); age < 7000 || age > 7400 {
		t.Errorf("what waits for a chain stands for %v s, want 7200", age)
	}
}
