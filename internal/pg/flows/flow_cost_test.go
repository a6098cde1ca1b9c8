package flows_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/pg/flows"
	"github.com/postern-dev/postern/internal/pgtest/cut"
)

// The cost of a flow grows by two statements for each of its jobs: for its row, and for that of its transaction. Steps,
// edges and the release of its jobs are one statement each, however many jobs there are.
func TestAFlowCostsTwoStatementsForEachJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, cutter := w.behindCutter()
	post := func(n int) (statements int) {
		var jobs []flow.Spec
		for ref := int64(1); ref <= int64(n); ref++ {
			j := flow.Spec{Ref: &ref, Script: "1", ScriptType: "python", Timeout: time.Minute}
			if ref > 1 {
				j.Dependends = []int64{ref - 1}
			}
			jobs = append(jobs, j)
		}
		return counted(cutter, func() {
			f, err := s.Flows.PostFlow(w.Ctx, w.By, flows.FlowSpec{Jobs: jobs, Start: true})
			w.Must(err)
			if f.Status != flow.FlowDispatched || f.Jobs != n {
				t.Errorf("%s with %d jobs, want %d", f.Status, f.Jobs, n)
			}
		})
	}
	post(2) // the first plans its statements
	few, many := post(2), post(42)
	t.Logf("%d statements for 2 jobs, %d for 42", few, many)
	if each := float64(many-few) / 40; each > 2.2 {
		t.Errorf("%.1f statements for each job, want two", each)
	}
	var steps, frozen int
	w.Scan(`SELECT (SELECT count(*) FROM postern.flow_step WHERE machine = 'job'),
		(SELECT count(*) FROM postern.job WHERE frozen IS NOT NULL AND steps = 2 AND tx_open)`, &steps, &frozen)
	if steps != 2*46 || frozen != 46 {
		t.Errorf("46 jobs have %d steps and %d of them are released, want 92 and 46", steps, frozen)
	}
}

// counted is how many statements a store that is reached through a cutter executes.
func counted(c *cut.Cutter, do func()) (n int) {
	c.Arm(nil, func(_ bool, statements int) { n = statements })
	do()
	c.Disarm()
	return n
}
