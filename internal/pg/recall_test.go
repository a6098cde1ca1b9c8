package pg_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// The row that a lease remembers decides an end only while it is true. A change meanwhile counts, whether by a lever, a
// post or another owner.
func TestAnEndByMemoryHoldsOnlyWhileNothingHasChanged(t *testing.T) {
	for _, c := range []struct {
		name    string
		posted  []string
		change  func(w *world, n pg.Node)
		missed  bool // the memory was wrong
		fenced  bool
		next    string
		phase   outbox.Phase
		settled outbox.State
	}{
		{name: "nothing", posted: []string{"a"}, phase: outbox.PhaseIdle, settled: outbox.DONE},
		{name: "nothing, with one behind", posted: []string{"a", "b"}, next: "b", phase: outbox.PhaseDispatching, settled: outbox.DONE},
		{name: "one was posted behind the last", posted: []string{"a"}, change: func(w *world, n pg.Node) { w.Post("q", "T", "b") },
			missed: true, next: "b", phase: outbox.PhaseDispatching, settled: outbox.DONE},
		{name: "one was posted behind others", posted: []string{"a", "b"}, change: func(w *world, n pg.Node) { w.Post("q", "T", "c") },
			next: "b", phase: outbox.PhaseDispatching, settled: outbox.DONE},
		{name: "it was paused", posted: []string{"a", "b"}, missed: true, phase: outbox.PhaseReady, settled: outbox.DONE,
			change: func(w *world, n pg.Node) { _, err := w.S.PauseQueue(w.Ctx, w.By, "q", true); w.Must(err) }},
		{name: "the next was cancelled", posted: []string{"a", "b", "c"}, missed: true, next: "c", phase: outbox.PhaseDispatching, settled: outbox.DONE,
			change: func(w *world, n pg.Node) { _, err := w.S.Cancel(w.Ctx, w.By, w.ByUID("b").ID); w.Must(err) }},
		{name: "its priority was raised", posted: []string{"a"}, missed: true, phase: outbox.PhaseIdle, settled: outbox.DONE,
			change: func(w *world, n pg.Node) {
				_, err := w.S.PutQueue(w.Ctx, w.By, pg.Queue{Name: "q", Priority: "High", WhenFull: "refuse", OnFailure: "continue"}, 0)
				w.Must(err)
			}},
		{name: "somebody else has it", posted: []string{"a"}, missed: true, fenced: true, phase: outbox.PhaseDispatching, settled: outbox.DISPATCHING,
			change: func(w *world, n pg.Node) {
				_, err := w.S.GiveUpAll(w.Ctx, n)
				w.Must(err)
				w.Claim(w.Node("m"), pgworld.Everything())
			}},
	} {
		for _, beside := range []bool{false, true} { // another queue ends in the same commit
			t.Run(fmt.Sprintf("%s, another beside: %v", c.name, beside), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.Dispatcher("T", nil)
				w.Post("q", "T", c.posted...)
				if beside {
					w.Post("beside", "T", "z")
				}
				n := w.Node("n")
				leases := w.Claim(n, pgworld.Everything())
				if c.change != nil {
					c.change(w, n)
				}
				var answers []*pg.Answer
				for _, l := range leases {
					answers = append(answers, w.Answer(l, pgworld.Done()))
					if !w.S.Recallable(answers[len(answers)-1]) {
						t.Fatal("it is not tried by memory")
					}
				}
				at := slices.IndexFunc(leases, func(l *pg.Lease) bool { return l.Queue == "q" })
				out := w.Settle(answers...)[at]
				if missed := w.S.Forgetful(); missed != c.missed || out.Fenced != c.fenced || out.Err != nil {
					t.Errorf("missed %v, %+v", missed, out)
				}
				next := ""
				if out.Next != nil {
					next = out.Next.Task.UID
				}
				var phase outbox.Phase
				w.Scan(`SELECT phase FROM postern.queue JOIN postern.queue_name USING (queue_id) WHERE name = 'q'`, &phase)
				if x := w.ByUID("a"); next != c.next || x.State != c.settled || phase != c.phase {
					t.Errorf("a is %s, q %s, next %q", x.State, phase, next)
				}
				pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
			})
		}
	}
}
