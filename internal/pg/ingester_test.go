package pg_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// Small batches and single posts share commits, and none knows: each has its own answers, in its order, a bad item
// is refused alone, and a queue has the order in which each of them was given.
func TestSmallBatchesShareCommits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.Post("q0", "T", "known")
	const posters, rounds = 24, 15
	i := pg.NewIngester(w.S.Store)
	var all sync.WaitGroup
	for p := range posters {
		all.Go(func() {
			last := map[string]int64{}
			for r := range rounds {
				name := fmt.Sprintf("%d-%d", p, r)
				var subs []*pg.Submission
				for k := range 1 + (p+r)%9 {
					subs = append(subs, w.Sub(fmt.Sprint("q", (p+k)%4), "T", fmt.Sprint(name, "-", k)))
				}
				bad := (p * r) % 11 // of some batches, one item
				if bad < len(subs) {
					subs[bad].Data = []byte("{\"text\": \"\xff\"}") // no UTF-8: PostgreSQL refuses the statement
				}
				if r == rounds-1 {
					subs = append(subs, w.Sub("q0", "T", "known"))
				}
				out, err := i.SubmitBatch(w.Ctx, subs, false)
				if err != nil || len(out) != len(subs) {
					t.Error(err, out)
					return
				}
				for k, a := range out {
					q := subs[k].Queue
					switch {
					case k == bad && subs[k].UID != "known":
						if f := fault.As(a.Err); a.Err == nil || f.Kind != fault.Invalid ||
							f.Fields[0].Pointer != "/data" {
							t.Errorf("%s, item %d: %v", name, k, a.Err)
						}
					case subs[k].UID == "known":
						if !a.Replay || a.ID.Seq != 1 {
							t.Errorf("%s, item %d: %+v", name, k, a)
						}
					case a.Err != nil || a.Replay || a.ID.Seq <= last[q]:
						t.Errorf("%s, item %d in %s, behind %d: %+v", name, k, q, last[q], a)
					default:
						last[q] = a.ID.Seq
					}
				}
				one, err := i.Submit(w.Ctx, w.Sub("q9", "T", name))
				if err != nil || one.ID.Seq <= last["q9"] {
					t.Errorf("%s, by itself: %+v, %v", name, one, err)
				}
				last["q9"] = one.ID.Seq
			}
		})
	}
	all.Wait()
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	var posts, commits int
	w.Scan(`SELECT count(*), count(DISTINCT created_at) FROM postern.task`, &posts, &commits)
	if commits > posts/4 {
		t.Errorf("%d posts have %d moments", posts, commits)
	}
}
