package domains_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
)

// An intent whose assembly, endorsement or preparation always fails says so, has a lever, and is cancelled in each of
// the states that it goes through; then its domain can be removed.
func TestAnIntentThatAlwaysFailsSaysWhyAndIsCancelled(t *testing.T) {
	for call, plan := range map[string]string{"assemble": "", "endorse": "", "prepare": `[]`} {
		t.Run(call, func(t *testing.T) {
			w := newWorld(t)
			w.plan, w.fails = plan, map[string]string{call: "the service answers 500"}
			w.post("a")
			named, states := 0, map[string]bool{}
			for range 40 {
				w.Must(w.turn(w.Ctx, w.S, w.node))
				why, err := w.S.Domains.WhyIntent(w.Ctx, w.ID, "tok", "a")
				w.Must(err)
				states[why.State] = true
				levers, next := 0, false
				for _, b := range why.Blockers {
					levers, next = levers+len(b.Levers), next || b.Next != nil
				}
				if levers == 0 && !next {
					t.Errorf("there is no lever, and no next step: %+v", why)
				}
				if strings.Contains(why.Summary, "answers 500") {
					if named++; why.Moving || levers == 0 {
						t.Errorf("it says %+v", why)
					}
				}
				w.Later(400 * time.Millisecond)
			}
			if named < 25 {
				t.Errorf("the error was named %d times of 40", named)
			}
			if r, err := w.S.Domains.Cancel(w.Ctx, w.By, "tok", "a"); err != nil || !r.Changed {
				t.Fatalf("in %v a cancel says %+v %v", states, r, err)
			}
			w.Same(w.receipts(), "failure cancelled")
			if _, err := w.S.Domains.Cancel(w.Ctx, w.By, "tok", "a"); fault.KindOf(err) != fault.Conflict {
				t.Error("a second cancel says", err)
			}
			w.fails = nil
			for range 20 {
				w.Must(w.turn(w.Ctx, w.S, w.node))
				w.Later(time.Second)
			}
			w.Same(w.receipts(), "failure cancelled")
			if n, activities := w.publics(); n+activities != 0 {
				t.Errorf("%d public transactions of %d activities", n, activities)
			}
			w.Must(w.S.Domains.Remove(w.Ctx, w.By, "tok"))
		})
	}
}
