package work_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remotetest"
)

func TestWhatSQLSubmitsIsCalledSoonAfterItsCommit(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("T", nil)
	h.fake.Script(dispatches, remotetest.Done("ok"))
	h.engine("n1", nil)
	app := h.db.NewPool(t, 1)
	h.post("warm", "T", "first")
	var took []time.Duration
	for i := range 21 {
		uid := fmt.Sprint("u", i)
		_, err := app.Exec(h.ctx, `SELECT postern.submit('q', 'T', '{}', uid => $1)`, uid)
		h.must(err)
		committed := time.Now()
		if _, err := h.fake.WaitCall(h.ctx, remotetest.Match{Op: remotetest.OpDispatch, UID: uid}); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(committed))
		time.Sleep(time.Duration(7*i%23) * time.Millisecond) // any moment of the drain's rhythm
	}
	slices.Sort(took)
	t.Logf("commit to call: p50 %s, worst %s", took[len(took)/2], took[len(took)-1])
	if p50 := took[len(took)/2]; p50 > 10*time.Second { // 20 ms on an idle machine; tests share one
		t.Errorf("half of the calls came more than %s after the commit", p50)
	}
	id, err := h.s.ByUID(h.ctx, h.by.Context, "u20")
	h.must(err)
	h.await([]outbox.ID{id}, soon, outbox.DONE)
}
