package pg_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
)

// A statement that writes and returns a row, and whose session ends with it, may have been committed. It is called
// unknown, as that of Exec is, and not "database_unavailable", which says that nothing was done.
func TestAWriteThatReturnsARowIsUnknownWhenItsSessionEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.Node("n")
	for table, write := range map[string]func() error{
		"postern.node":  func() error { _, err := w.S.Reincarnate(w.Ctx, n); return err },
		"postern.store": func() error { _, err := w.S.CompareDeployment(w.Ctx, w.By, "here"); return err },
	} {
		mend := w.dies("UPDATE", table)
		if err := write(); fault.CodeOf(err) != "commit_unknown" {
			t.Errorf("the session ended at an update of %s: %v, want commit_unknown", table, err)
		}
		mend()
		if err := write(); err != nil {
			t.Errorf("the update of %s by another session: %v", table, err)
		}
	}
	if _, err := w.S.Reincarnate(w.Ctx, pg.Node{ID: 1 << 40, Name: "gone"}); fault.CodeOf(err) != "node_gone" {
		t.Errorf("a node without a row: %v, want node_gone", err)
	}
}
