package pg_test

import (
	"fmt"
	"slices"

	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
)

// drain takes what is staged.
var drain = op{name: "drain", run: func(a *arena, s *stores.Store) string {
	d, err := pg.NewDrainer(s.Store).Once(a.Ctx)
	return fmt.Sprintf("%d of which %d refused", d.Rows, d.Refused) + refusal(err) + refusal(d.Failed)
}}

// insertAt posts one to a place before the i-th of queue q.
func insertAt(i int) op {
	return op{name: fmt.Sprintf("insert before %d", i+1), run: func(a *arena, s *stores.Store) string {
		sub := a.Sub("q", "T", "x")
		sub.Insertion = &pg.Insertion{Place: pg.Place{Before: &a.ids[i]}, By: a.By}
		out, err := pg.NewIngester(s.Store).SubmitBatch(a.Ctx, []*pg.Submission{sub}, true)
		said := refusal(err)
		for _, o := range out {
			said += fmt.Sprintf(" %d/%d %v%s", o.ID.Queue, o.ID.Seq, o.Replay, refusal(o.Err))
		}
		return said
	}}
}

// redrive posts the i-th of queue q once more, under a uid that makes it repeatable.
func redrive(i int) op {
	return op{name: fmt.Sprintf("redrive %d", i+1), run: func(a *arena, s *stores.Store) string {
		out, err := s.Redrive(a.Ctx, a.By, a.ids[i], pg.Redrive{UID: "again", Hash: []byte("again")})
		return fmt.Sprintf("%d/%d", out.ID.Queue, out.ID.Seq) + refusal(err)
	}}
}

// onlyCrashes are stages and statements that pairs do not have.
var onlyCrashes = []stage{
	{"with staged rows",
		func(a *arena) {
			a.ids = a.Post("q", "T", "a")
			// the ids of new queues differ from run to run
			for _, row := range [][2]string{{"q", "x"}, {"q", "y"}, {"r", "z"}} {
				a.Must(a.submit(a.S.Pool(), row[0], "T", row[1]))
			}
		},
		func(a *arena) []op { return []op{drain, claim, cancel(0)} }},
	{"with a place that is wanted",
		func(a *arena) { a.ids = a.Post("q", "T", "a", "b", "c") },
		func(a *arena) []op { return []op{insertAt(0), insertAt(2)} }},
	{"with one to be redriven",
		func(a *arena) {
			a.flying(0, "a", "b")
			a.dispatched("rejected")[0].run(a, a.S)
		},
		func(a *arena) []op { return []op{redrive(0)} }},
}

// crashStages are all of them.
func crashStages() []stage { return slices.Concat(stages, onlyCrashes) }

// shortHistory are the stages whose statements are tried with a crash at each point, in each run. What a statement does
// to locks, rows and commits is the same in the other stages but for the branch that it takes.
var shortHistory = []string{"ready", "at the end of a lazy run", "of a dead node", "waiting to ask", "submitted",
	"in delay",
	"after a delay", "watched by others", "held", "with staged rows", "with a place that is wanted",
	"with one to be redriven"}
