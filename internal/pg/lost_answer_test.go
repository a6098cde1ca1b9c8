package pg_test

import (
	"context"
	"errors"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
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

// Noting notes whether anything was committed under a context: by a lever, and not by a read, a refusal or a dry run.
func TestWhatWasCommittedIsNoted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.Post("q", "T", "a")
	for name, c := range map[string]struct {
		do   func(context.Context) error
		want bool
	}{
		"a lever": {func(ctx context.Context) error {
			_, err := w.S.PauseQueue(ctx, w.By, "q", true)
			return err
		}, true},
		"a read": {func(ctx context.Context) error { _, err := w.S.Quarantine(ctx); return err }, false},
		"a dry run": {func(ctx context.Context) error {
			ctx, end := w.S.DryRun(ctx)
			defer end()
			_, err := w.S.PauseDispatcher(ctx, w.By, "T", true)
			return err
		}, false},
		"a refusal": {func(ctx context.Context) error {
			if _, err := w.S.PauseQueue(ctx, w.By, "none", true); err == nil {
				return errors.New("a queue that is not there was paused")
			}
			return nil
		}, false},
	} {
		ctx, committed := db.Noting(w.Ctx)
		if err := c.do(ctx); err != nil || committed() != c.want {
			t.Errorf("%s: committed %v, want %v: %v", name, committed(), c.want, err)
		}
	}
}
