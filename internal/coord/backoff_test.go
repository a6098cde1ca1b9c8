package coord

import "testing"

// Each try of an intent whose endorser, preparation or assembly does not answer is a generation: they become rare, and
// end when there is an answer.
func TestTriesWithoutAnAnswerBecomeRare(t *testing.T) {
	for _, kind := range []string{"assemble", "endorse", "prepare"} {
		p := newPair(t, func(s *Settings) { s.Mode, s.Static = Static, "b" })
		hangs := true
		p.answer = func(c *Call, _ *Answer) bool { return !hangs || c.Kind != kind }
		p.handle("b", Event{Created: &Intent{ID: "i"}})
		tries := func() (n int) {
			for _, state := range p.states(CoordinatorTransaction.Name, "i") {
				if state == Assembling {
					n++
				}
			}
			return n
		}
		p.pass(60)
		first := tries()
		p.pass(3600)
		if n := tries() - first; first < 3 || n < 40 || n > 60 {
			t.Errorf("%s: %d tries in the first minute, and %d in the next hour", kind, first, n)
		}
		hangs = false
		if p.pass(130); len(p.posts) != 1 {
			t.Errorf("%s: two minutes after it answers there are %d posts", kind, len(p.posts))
		}
	}
}
