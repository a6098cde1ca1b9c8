package coord

import "testing"

// A height that another node was told by mistake does not stay: it is not believed, and the next word takes its place.
func TestAWrongHeightDoesNotStay(t *testing.T) {
	p := newPair(t, nil)
	word := func(beat, height int64) Event {
		return Event{Message: &Message{Kind: Acknowledged, From: "b", To: "a", Install: 1,
			Beat: noon.UnixMicro() + beat, Height: height}}
	}
	for _, c := range []struct{ said, known int64 }{{25, 25}, {24, 25}, {1e15, 1e15}, {26, 26}} {
		p.handle("a", word(c.said, c.said))
		if have := p.nodes["a"].peer("b").Height; have != c.known {
			t.Errorf("behind %d its height is %d, want %d", c.said, have, c.known)
		}
	}
	p.nodes["a"].Height = 1e9
	p.handle("a")
	if h := p.nodes["a"].Height; h != 1e9 {
		t.Errorf("a height falls to %d by itself", h)
	}
	p.handle("a", Event{Lever: Lower})
	if h := p.nodes["a"].Height; h != 20 {
		t.Errorf("it is %d, and was lowered to 20", h)
	}
}

// Of two nodes one outranks the other for both, however far their heights lie apart.
func TestTwoNodesAgreeWhoOutranks(t *testing.T) {
	settings := Defaults("a", "b")
	settings.BlockRange = 10
	side := func(self, other string, own, told int64) bool {
		d := New("tok", self, settings, 1)
		d.Height = own
		return (&turn{d: d}).outranks(other, self, &Peer{Node: other, Height: told})
	}
	for own := range int64(60) {
		for other := range int64(60) {
			if over, under := side("a", "b", own, other), side("b", "a", other, own); over == under {
				t.Fatalf("heights %d and %d: b outranks a: %v, a outranks b: %v", own, other, over, under)
			}
		}
	}
}
