package reads_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// A head that is in its state for longer than that may last is told so, with the lever, and not as one that moves; it
// is in the sample of what is stuck, and counted. One whose moment has only just come is no such.
func TestWhyTellsWhatIsOverdue(t *testing.T) {
	t.Parallel()
	called := func(w *world, n pg.Node) { w.Claim(n, pgworld.Everything()) }
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
			w.Settle(w.Answer(w.Claim(n, pgworld.Everything())[0], pgworld.Failed()))
			w.Later(time.Minute)
			_, err := w.S.Beat(w.Ctx, n, pg.NodeLoad{})
			w.Must(err)
			_, err = w.S.Wake(w.Ctx, n, 1, 1)
			w.Must(err)
		}, `UPDATE postern.queue SET entered_at = clock_timestamp() - interval '15 min', not_before = clock_timestamp() - interval '14 min'`},
		{"nobody polls", "overdue", "no process has looked at it (accepted by its worker", "/abandon", func(w *world, n pg.Node) {
			w.Settle(w.Answer(w.Claim(n, pgworld.Everything())[0], pgworld.Hashed()))
		}, `UPDATE postern.timer SET due_at = clock_timestamp() - interval '4 min'`},
		{"a poll is due", "inclusion_pending", "not included yet", "", func(w *world, n pg.Node) {
			w.Settle(w.Answer(w.Claim(n, pgworld.Everything())[0], pgworld.Hashed()))
		}, `UPDATE postern.timer SET due_at = clock_timestamp() - interval '1 min'`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Dispatcher("T", nil)
			id := w.Post("q", "T", "a")[0]
			n := w.Node("n")
			c.make(w, n)
			w.Exec(c.plant)
			y, err := w.S.Reads.Why(w.Ctx, w.ID, id)
			w.Must(err)
			root := y.Blockers[len(y.Blockers)-1]
			if root.Kind != c.kind || !strings.Contains(root.Detail, c.detail) || y.Moving != (c.kind != "overdue") {
				t.Errorf("%+v", y)
			}
			if root.Next != nil && root.Next.At.Before(w.Now) {
				t.Errorf("%s was to happen at %s", root.Next.What, root.Next.At)
			}
			if c.lever != "" && (len(root.Levers) == 0 || !strings.HasSuffix(root.Levers[0].Path, c.lever)) {
				t.Errorf("levers %+v, want %s first", root.Levers, c.lever)
			}
			sample, err := w.S.Reads.TakeSample(w.Ctx)
			w.Must(err)
			stuck, err := w.S.Reads.SampleStuck(w.Ctx)
			w.Must(err)
			if late := c.kind == "overdue"; (sample.Trouble.Overdue == 1) != late || (stuck == 1) != late {
				t.Errorf("%d are counted as overdue, %d are in the sample", sample.Trouble.Overdue, stuck)
			}
			if c.kind == "overdue" {
				w.Same(w.Lines(`SELECT blocker FROM postern.stuck`), "overdue")
			}
		})
	}
}

// A process that only waits for room, and processes that all drain, leave nothing overdue.
func TestWhatWaitsForRoomIsNotOverdue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.Post("q", "T", "a")
	n := w.Node("n")
	w.Settle(w.Answer(w.Claim(n, pgworld.Everything())[0], pgworld.Failed()))
	w.Exec(`UPDATE postern.timer SET due_at = clock_timestamp() - interval '1 h'; UPDATE postern.queue SET not_before = clock_timestamp() - interval '1 h'`)
	if _, err := w.S.Wake(w.Ctx, n, 0, 10); err != nil {
		t.Fatal(err)
	}
	w.Same(w.Lines(`SELECT queue_id::text FROM postern.overdue`))
	w.Exec(`UPDATE postern.timer SET due_at = clock_timestamp() - interval '1 h'; UPDATE postern.node SET draining = true`)
	w.Same(w.Lines(`SELECT queue_id::text FROM postern.overdue`))
	w.Exec(`UPDATE postern.node SET draining = false`)
	w.Same(w.Lines(`SELECT phase FROM postern.overdue`), string(outbox.PhaseDelay))
}
