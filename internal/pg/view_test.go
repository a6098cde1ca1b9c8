package pg_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/pg"
)

func TestTheViewOfQueuesShowsWhatTheAPIShows(t *testing.T) {
	w := newWorld(t)
	w.dispatcher("T", nil)
	ids := w.post("q", "T", "a", "b", "c")
	row := func() (columns, head string, lag bool) {
		t.Helper()
		w.must(w.s.Pool().QueryRow(w.ctx, `SELECT (SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'postern.queues'::regclass AND attnum > 0),
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
	w.lever(w.s.Move(w.ctx, w.by, ids[2], pg.Place{}))
	if _, head, _ = row(); head != ids[2].String() {
		t.Errorf("head %s, want what was moved, %s", head, ids[2])
	}
	n := w.node("n")
	l := w.claim(n, everything())[0]
	for range 2 {
		l = w.settle(w.answer(l, done()))[0].Next
	}
	if _, head, _ = row(); head != ids[1].String() {
		t.Errorf("head %s, want the last, %s", head, ids[1])
	}
	w.settle(w.answer(l, done()))
	if _, head, lag = row(); head != "" || lag {
		t.Errorf("an empty queue has the head %s, and a lag: %v", head, lag)
	}
}
