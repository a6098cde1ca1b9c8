package devnetworker

import "testing"

func TestTheEpochGoesBeforeTheFence(t *testing.T) {
	old, restored, newer := rank{1, 900}, rank{2, 5}, rank{2, 6}
	for _, c := range []struct {
		a, b rank
		want bool
	}{{old, restored, true}, {restored, old, false}, {restored, newer, true}, {newer, newer, false}} {
		if got := c.a.before(c.b); got != c.want {
			t.Errorf("%v before %v: %v", c.a, c.b, got)
		}
	}
}
