package pg_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

func TestAQueueWhoseBodyIsGoneDoesNotStopTheOthers(t *testing.T) {
	w := newWorld(t)
	w.Dispatcher("T", nil)
	gone := w.Post("a", "T", "a1")[0]
	fine := w.Post("b", "T", "b1")[0]
	_, err := w.S.Pool().Exec(w.Ctx, `DELETE FROM postern.task WHERE queue_id = $1`, gone.Queue)
	pgworld.OK(t, err)
	n := w.Node("n")
	got := w.Claim(n, pgworld.Everything())
	if len(got) != 1 || got[0].ID() != fine {
		t.Fatalf("claimed %+v", got)
	}
	var owned bool
	pgworld.OK(t, w.S.Pool().QueryRow(w.Ctx,
		`SELECT node_id IS NOT NULL FROM postern.queue WHERE queue_id = $1`, gone.Queue).Scan(&owned))
	if owned {
		t.Error("the queue without a body belongs to a node that cannot work on it")
	}
}
