package coord

import "testing"

// Nothing is assembled while as much as may be is on its way, since all of it goes along with each request, and more is
// as soon as the ledger has some of it.
func TestNothingIsAssembledWhileTooMuchIsPending(t *testing.T) {
	p := newPair(t, func(s *Settings) { s.Mode, s.Static = Static, "b" })
	p.answer = func(c *Call, a *Answer) bool {
		a.Assembled.Plan, a.Assembled.Size = nil, MostPending/2
		return true
	}
	p.handle("b", many("i", 5)...)
	if d := p.nodes["b"]; len(p.posts) != 2 || !d.Full() {
		t.Fatalf("%d go out, and it is full: %v", len(p.posts), d.Full())
	}
	p.handle("b", Event{Core: &CoreWord{ID: p.posts[0].ID, UID: p.posts[0].UID, State: CoreSuccess}})
	if p.pass(2); len(p.posts) != 5 {
		t.Errorf("%d of 5 go out in the end", len(p.posts))
	}
	making := []byte(`{"assembled": 1, "inputs": ["in"], "outputs": [{"id": "out", "data": "12345678"}], "plan": []}`)
	if _, brief, err := p.nodes["b"].ReadMaking(making); err != nil || brief.Size != len(`in`+`out`+`"12345678"`) {
		t.Errorf("%+v %v", brief, err)
	}
}
