package flows_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/pg/flows"
)

// large registers a runner with eight slots, and claims for it: what it gets it holds from then on.
func (w *world) large() func() []*flows.Taken {
	w.T.Helper()
	epoch, _, err := w.S.Flows.Register(w.Ctx, w.By, "a", flows.Registration{Instance: "a", Able: []string{"python"},
		Slots: 8})
	w.Must(err)
	w.epochs["a"] = epoch
	var holds []flows.Hold
	return func() []*flows.Taken {
		w.T.Helper()
		c, err := w.S.Flows.Claim(w.Ctx, w.ID, "a", epoch, 8-len(holds), holds)
		w.Must(err)
		for _, v := range c.Taken {
			holds = append(holds, flows.Hold{Try: v.ID, Fence: v.Fence})
		}
		return c.Taken
	}
}

// A runner reads an answer whole, and on a slow line must know of its tries before they are given to others: one answer
// carries half a MiB of scripts, and the next claims bring the others, in their order.
func TestAClaimBringsAsMuchAsALineCarries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	claim := w.large()
	for n := range 5 {
		_, err := w.S.Flows.PostJob(w.Ctx, w.By, flow.Spec{Script: fmt.Sprint(n) + strings.Repeat("#", 200<<10),
			ScriptType: "python", Timeout: time.Minute}, "")
		w.Must(err)
		w.offer()
		w.Later(time.Second)
	}
	said := ""
	for range 4 {
		for _, v := range claim() {
			said += v.Posted.Script[:1]
		}
		said += " "
	}
	if said != "01 23 4  " {
		t.Errorf("four claims bring %q", said)
	}
}

// Inputs that do not fit beside others are left out of an answer, for the runner to fetch.
func TestInputsOfManyAreFetched(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	claim := w.large()
	var jobs []flow.Spec
	for ref := range int64(7) {
		j := flow.Spec{Ref: &ref, Script: "1", ScriptType: "python", Timeout: time.Minute, NeedTimeout: time.Hour}
		if ref >= 4 {
			j.Dependends = []int64{0, 1, 2, 3}
		}
		jobs = append(jobs, j)
	}
	_, err := w.S.Flows.PostFlow(w.Ctx, w.By, flows.FlowSpec{Jobs: jobs, Start: true})
	w.Must(err)
	w.offer()
	first := claim()
	for _, v := range first {
		_, err := w.S.Flows.End(w.Ctx, w.ID, v.ID, v.Fence,
			flows.Said{Result: json.RawMessage(`{"n":"` + strings.Repeat("x", 60<<10) + `"}`)})
		w.Must(err)
	}
	w.settleAll()
	_, err = w.S.Flows.Advance(w.Ctx)
	w.Must(err)
	w.offer()
	with, without := 0, 0
	for _, v := range claim() {
		switch {
		case v.Omitted && v.Inputs == nil:
			without++
		case len(v.Inputs) > 240<<10:
			with++
		}
	}
	if len(first) != 4 || with != 2 || without != 1 {
		t.Errorf("%d jobs were first; of the others come %d with inputs and %d without", len(first), with, without)
	}
}
