package pg_test

import "testing"

func TestAQueueWhoseBodyIsGoneDoesNotStopTheOthers(t *testing.T) {
	w := newWorld(t)
	w.dispatcher("T", nil)
	gone := w.post("a", "T", "a1")[0]
	fine := w.post("b", "T", "b1")[0]
	_, err := w.s.Pool().Exec(w.ctx, `DELETE FROM postern.task WHERE queue_id = $1`, gone.Queue)
	ok(t, err)
	n := w.node("n")
	got := w.claim(n, everything())
	if len(got) != 1 || got[0].ID() != fine {
		t.Fatalf("claimed %+v", got)
	}
	var owned bool
	ok(t, w.s.Pool().QueryRow(w.ctx, `SELECT node_id IS NOT NULL FROM postern.queue WHERE queue_id = $1`, gone.Queue).Scan(&owned))
	if owned {
		t.Error("the queue without a body belongs to a node that cannot work on it")
	}
}
