package flows_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/pg/flows"
)

// A page looks at a bounded number of jobs for those that no index finds, and says where the list goes on.
func TestAPageLooksAtABoundedNumberOfJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var ids []uuid.UUID
	for range 5 {
		ids = append(ids, w.post(0).ID)
		w.Later(time.Second)
	}
	walk := func(f flows.JobFilter) (found []uuid.UUID, pages int) {
		for more := true; more; pages++ {
			list, next, err := w.S.Flows.ListJobs(w.Ctx, w.ID, f)
			w.Must(err)
			for _, j := range list {
				found = append(found, j.ID)
			}
			more, f.After = next != nil, next
		}
		return found, pages
	}
	for typ, want := range map[string]int{"sal": 0, "python": 5} {
		found, pages := walk(flows.JobFilter{ScriptType: typ, Limit: 9, Examined: 2})
		if len(found) != want || pages != 3 {
			t.Errorf("%d jobs of type %s in %d pages, want %d in 3", len(found), typ, pages, want)
		}
	}
	found, pages := walk(flows.JobFilter{Limit: 9, Examined: 2})
	if len(found) != 5 || pages != 1 || found[4] != ids[0] {
		t.Errorf("%v in %d pages, want all in one, the newest first", found, pages)
	}
	one, next, err := w.S.Flows.ListJobs(w.Ctx, w.ID, flows.JobFilter{ScriptType: "python", Limit: 1, Examined: 2})
	if err != nil || next != nil || len(one) != 1 || one[0].ID != ids[4] {
		t.Error("a page that is full goes on behind its last job: ", one, next, err)
	}
}
