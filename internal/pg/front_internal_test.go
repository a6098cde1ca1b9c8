package pg

import (
	"testing"
	"time"
)

// A claim that has begun to look before a front is moved back has not seen what lies there, and must not move it on
// again.
func TestAFrontThatIsMovedBackStaysUntilItWasLookedAt(t *testing.T) {
	now := time.Now()
	at := func(s int) front { return front{1: now.Add(time.Duration(s) * time.Second)} }
	lane := func(s int) []*openLane { return []*openLane{{id: 7, front: at(s)}} }
	var f fronts
	f.seen(f.view(false), lane(-20), 0, now)
	early := f.view(false)
	f.back(false, 0, map[int32]front{7: at(-30), 8: at(-40)}, nil)
	f.seen(early, lane(-10), 0, now)
	late := f.view(false)
	if got := f.of[7]; !got[1].Equal(at(-30)[1]) || len(f.of) != 1 {
		t.Fatalf("a claim that began before has moved it to %v", f.of)
	}
	f.seen(late, lane(-10), 0, now)
	if got := f.of[7]; !got[1].Equal(at(-10)[1]) {
		t.Errorf("a claim that began there has left it at %v", got)
	}
}

// Claims do not look back where that takes long. The look beside them takes a bounded share of the time.
func TestALookThatIsFeltIsNotTheClaims(t *testing.T) {
	var f fronts
	l := f.view(false)
	l.began = l.began.Add(-time.Second)
	f.seen(l, nil, 0, time.Now())
	f.next = time.Time{}
	if !l.whole || !f.aside || f.view(false).whole || !f.view(true).whole {
		t.Fatalf("after a look of a second %+v", &f)
	}
	if d := time.Until(f.all); d < 55*time.Second || d > 61*time.Second {
		t.Errorf("the next is in %s", d)
	}
	f.back(true, 2*time.Second, nil, nil)
	if d := time.Until(f.all); !f.aside || d < 110*time.Second || time.Until(f.nearby) > time.Second {
		t.Errorf("after one of two seconds it is in %s, aside: %t", d, f.aside)
	}
	f.back(true, time.Millisecond, nil, nil)
	if f.aside || !f.view(false).whole {
		t.Error("claims have not taken it back")
	}
}
