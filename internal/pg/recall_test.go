package pg_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
)

// What a lease remembers of its row decides an end only while it is true: whatever changed meanwhile counts, be it what
// a lever did, what was posted, or another owner.
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
		{name: "one was posted behind the last", posted: []string{"a"}, change: func(w *world, n pg.Node) { w.post("q", "T", "b") },
			missed: true, next: "b", phase: outbox.PhaseDispatching, settled: outbox.DONE},
		{name: "one was posted behind others", posted: []string{"a", "b"}, change: func(w *world, n pg.Node) { w.post("q", "T", "c") },
			next: "b", phase: outbox.PhaseDispatching, settled: outbox.DONE},
		{name: "it was paused", posted: []string{"a", "b"}, missed: true, phase: outbox.PhaseReady, settled: outbox.DONE,
			change: func(w *world, n pg.Node) { _, err := w.s.PauseQueue(w.ctx, w.by, "q", true); w.must(err) }},
		{name: "the next was cancelled", posted: []string{"a", "b", "c"}, missed: true, next: "c", phase: outbox.PhaseDispatching, settled: outbox.DONE,
			change: func(w *world, n pg.Node) { _, err := w.s.Cancel(w.ctx, w.by, w.byUID("b").ID); w.must(err) }},
		{name: "its priority was raised", posted: []string{"a"}, missed: true, phase: outbox.PhaseIdle, settled: outbox.DONE,
			change: func(w *world, n pg.Node) {
				_, err := w.s.PutQueue(w.ctx, w.by, pg.Queue{Name: "q", Priority: "High", WhenFull: "refuse", OnFailure: "continue"}, 0)
				w.must(err)
			}},
		{name: "somebody else has it", posted: []string{"a"}, missed: true, fenced: true, phase: outbox.PhaseDispatching, settled: outbox.DISPATCHING,
			change: func(w *world, n pg.Node) {
				_, err := w.s.GiveUpAll(w.ctx, n)
				w.must(err)
				w.claim(w.node("m"), everything())
			}},
	} {
		for _, beside := range []bool{false, true} { // another queue ends in the same commit
			t.Run(fmt.Sprintf("%s, another beside: %v", c.name, beside), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.dispatcher("T", nil)
				w.post("q", "T", c.posted...)
				if beside {
					w.post("beside", "T", "z")
				}
				n := w.node("n")
				leases := w.claim(n, everything())
				if c.change != nil {
					c.change(w, n)
				}
				var answers []*pg.Answer
				for _, l := range leases {
					answers = append(answers, w.answer(l, done()))
					if !w.s.Recallable(answers[len(answers)-1]) {
						t.Fatal("it is not tried by memory")
					}
				}
				at := slices.IndexFunc(leases, func(l *pg.Lease) bool { return l.Queue == "q" })
				out := w.settle(answers...)[at]
				if missed := w.s.Forgetful(); missed != c.missed || out.Fenced != c.fenced || out.Err != nil {
					t.Errorf("missed %v, %+v", missed, out)
				}
				next := ""
				if out.Next != nil {
					next = out.Next.Task.UID
				}
				var phase outbox.Phase
				w.scan(`SELECT phase FROM postern.queue JOIN postern.queue_name USING (queue_id) WHERE name = 'q'`, &phase)
				if x := w.byUID("a"); next != c.next || x.State != c.settled || phase != c.phase {
					t.Errorf("a is %s, q %s, next %q", x.State, phase, next)
				}
				holdsTrue(t, w.ctx, w.s.Pool())
			})
		}
	}
}
