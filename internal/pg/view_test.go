package pg_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

func TestTheViewOfQueuesShowsWhatTheAPIShows(t *testing.T) {
	w := newWorld(t)
	w.Dispatcher("T", nil)
	ids := w.Post("q", "T", "a", "b", "c")
	row := func() (columns, head string, lag bool) {
		t.Helper()
		w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT (SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'postern.queues'::regclass AND attnum > 0),
			coalesce(head_id::text, ''), lag IS NOT NULL FROM postern.queues WHERE queue = 'q'`).Scan(&columns, &head, &lag))
		return columns, head, lag
	}
	columns, head, lag := row()
	if columns != "context queue state depth lag head_id head_since sender node attempt next_at paused draining priority" {
		t.Error(columns)
	}
	if head != ids[0].String() || !lag {
		t.Errorf("head %s, want %s, lag %v", head, ids[0], lag)
	}
	w.Lever(w.S.Move(w.Ctx, w.By, ids[2], pg.Place{}))
	if _, head, _ = row(); head != ids[2].String() {
		t.Errorf("head %s, want what was moved, %s", head, ids[2])
	}
	n := w.Node("n")
	l := w.Claim(n, pgworld.Everything())[0]
	for range 2 {
		l = w.Settle(w.Answer(l, pgworld.Done()))[0].Next
	}
	if _, head, _ = row(); head != ids[1].String() {
		t.Errorf("head %s, want the last, %s", head, ids[1])
	}
	w.Settle(w.Answer(l, pgworld.Done()))
	if _, head, lag = row(); head != "" || lag {
		t.Errorf("an empty queue has the head %s, and a lag: %v", head, lag)
	}
}
