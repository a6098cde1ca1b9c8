package work_test

import (
	"context"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/work"
)

// TestANodeWithoutARowEnds deletes the row of a node, as housekeeping does with one that was frozen for more than a
// day: the engine says why it ends.
func TestANodeWithoutARowEnds(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	s := h.store()
	e := work.New(work.Config{Store: s, Worker: remote.Mux{}, NodeName: "frozen",
		TTL: 2 * time.Second, Grace: time.Hour})
	ctx, cancel := context.WithTimeout(h.ctx, time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	for n := 0; n == 0; time.Sleep(20 * time.Millisecond) {
		h.must(s.Pool().QueryRow(ctx, `SELECT count(*) FROM postern.node WHERE name = 'frozen'`).Scan(&n))
	}
	_, err := s.Pool().Exec(ctx, `DELETE FROM postern.node`)
	h.must(err)
	select {
	case err := <-ended:
		if fault.CodeOf(err) != "node_gone" {
			t.Errorf("it ends with %v", err)
		}
	case <-ctx.Done():
		t.Error("it does not end")
	}
}
