package pg_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
)

// A head that is in its state for longer than that may last is told so, with the lever, and not as one that moves; it is in the
// sample of what is stuck, and counted. One whose moment has only just come is no such.
func TestWhyTellsWhatIsOverdue(t *testing.T) {
	t.Parallel()
	called := func(w *world, n pg.Node) { w.claim(n, everything()) }
	for _, c := range []struct {
		name, kind, detail, lever string
		make                      func(w *world, n pg.Node)
		plant                     string
	}{
		{"its answer is being recorded", "in_worker", "attempt 1 is with its worker", "/abandon", called,
			`UPDATE postern.queue SET entered_at = clock_timestamp() - interval '11 min'`},
		{"its node lost it", "overdue", "should have left DISPATCHING by now: node n has it in hand", "/nodes/n/bury", called,
			`UPDATE postern.queue SET entered_at = clock_timestamp() - interval '14 min'`},
		{"its node lost its delay", "overdue", "should have left DELAY by now: node n has it in hand", "/nodes/n/bury", func(w *world, n pg.Node) {
			w.settle(w.answer(w.claim(n, everything())[0], failed()))
			w.later(time.Minute)
			_, err := w.s.Beat(w.ctx, n)
			w.must(err)
			_, err = w.s.Wake(w.ctx, n, 1, 1)
			w.must(err)
		}, `UPDATE postern.queue SET entered_at = clock_timestamp() - interval '15 min', not_before = clock_timestamp() - interval '14 min'`},
		{"nobody polls", "overdue", "no process has looked at it (accepted by its worker", "/abandon", func(w *world, n pg.Node) {
			w.settle(w.answer(w.claim(n, everything())[0], hashed()))
		}, `UPDATE postern.timer SET due_at = clock_timestamp() - interval '4 min'`},
		{"a poll is due", "inclusion_pending", "not included yet", "", func(w *world, n pg.Node) {
			w.settle(w.answer(w.claim(n, everything())[0], hashed()))
		}, `UPDATE postern.timer SET due_at = clock_timestamp() - interval '1 min'`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.dispatcher("T", nil)
			id := w.post("q", "T", "a")[0]
			n := w.node("n")
			c.make(w, n)
			w.exec(c.plant)
			y, err := w.s.Why(w.ctx, w.id, id)
			w.must(err)
			root := y.Blockers[len(y.Blockers)-1]
			if root.Kind != c.kind || !strings.Contains(root.Detail, c.detail) || y.Moving != (c.kind != "overdue") {
				t.Errorf("%+v", y)
			}
			if root.Next != nil && root.Next.At.Before(w.now) {
				t.Errorf("%s was to happen at %s", root.Next.What, root.Next.At)
			}
			if c.lever != "" && (len(root.Levers) == 0 || !strings.HasSuffix(root.Levers[0].Path, c.lever)) {
				t.Errorf("levers %+v, want %s first", root.Levers, c.lever)
			}
			sample, err := w.s.TakeSample(w.ctx)
			w.must(err)
			stuck, err := w.s.SampleStuck(w.ctx)
			w.must(err)
			if late := c.kind == "overdue"; (sample.Trouble.Overdue == 1) != late || (stuck == 1) != late {
				t.Errorf("%d are counted as overdue, %d are in the sample", sample.Trouble.Overdue, stuck)
			}
			if c.kind == "overdue" {
				w.same(w.lines(`SELECT blocker FROM postern.stuck`), "overdue")
			}
		})
	}
}

// A process that only waits for room, and processes that all drain, leave nothing overdue.
func TestWhatWaitsForRoomIsNotOverdue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	w.post("q", "T", "a")
	n := w.node("n")
	w.settle(w.answer(w.claim(n, everything())[0], failed()))
	w.exec(`UPDATE postern.timer SET due_at = clock_timestamp() - interval '1 h'; UPDATE postern.queue SET not_before = clock_timestamp() - interval '1 h'`)
	if _, err := w.s.Wake(w.ctx, n, 0, 10); err != nil {
		t.Fatal(err)
	}
	w.same(w.lines(`SELECT queue_id::text FROM postern.overdue`))
	w.exec(`UPDATE postern.timer SET due_at = clock_timestamp() - interval '1 h'; UPDATE postern.node SET draining = true`)
	w.same(w.lines(`SELECT queue_id::text FROM postern.overdue`))
	w.exec(`UPDATE postern.node SET draining = false`)
	w.same(w.lines(`SELECT phase FROM postern.overdue`), string(outbox.PhaseDelay))
}
