package processor

import (
	"encoding/json"
	"slices"
	"testing"
)

func at(place int64) *int64 { return &place }

func TestADealtWindowLiesBetweenItsNeighbours(t *testing.T) {
	for _, c := range []struct {
		name string
		w    Window
		ok   bool
	}{
		{"a whole line", Window{N: 5}, true},
		{"the head", Window{N: 3, After: at(7)}, true},
		{"the tail", Window{N: 3, Before: at(7)}, true},
		{"the middle", Window{N: 65, Before: at(0), After: at(66 << 10)}, true},
		{"one too close", Window{N: 65, Before: at(0), After: at(66<<10 - 1)}, false},
		{"the head at the edge", Window{N: 3, After: at(-edge + 2)}, false},
		{"the tail at the edge", Window{N: 3, Before: at(edge - 2)}, false},
		{"a long whole line", Window{N: 1 << 17}, true},
	} {
		places, ok := c.w.Deal()
		if ok != c.ok {
			t.Errorf("%s: %v, want %v", c.name, ok, c.ok)
			continue
		}
		if !ok {
			continue
		}
		all := places
		if c.w.Before != nil {
			all = append([]int64{*c.w.Before}, all...)
		}
		if c.w.After != nil {
			all = append(slices.Clip(all), *c.w.After)
		}
		for i := range all[1:] {
			if all[i+1]-all[i] < roomy {
				t.Fatalf("%s: places %d and %d are %d and %d", c.name, i, i+1, all[i], all[i+1])
			}
		}
		if int64(len(places)) != c.w.N {
			t.Errorf("%s: %d places, want %d", c.name, len(places), c.w.N)
		}
	}
}

func TestTheBoundsOfALineEncloseItsPlaces(t *testing.T) {
	var l Line
	var places []int64
	for _, place := range []int64{0, Gap, -Gap, 5, 2 * Gap} {
		l, places = l.With(place), append(places, place)
	}
	for _, place := range []int64{-Gap, 2 * Gap, 5, 0, Gap} {
		places = slices.DeleteFunc(places, func(p int64) bool { return p == place })
		l = l.Without(place)
		for _, p := range places {
			if p < l.Lowest || p > l.Highest {
				t.Errorf("%d lies beyond %+v", p, l)
			}
		}
	}
	if l != (Line{}) {
		t.Errorf("the empty line is %+v", l)
	}
}

func TestAPageIsCutWhereReadingEnds(t *testing.T) {
	l := Line{Length: 600}
	for _, c := range []struct {
		r, want Range
	}{
		{Range{To: -1}, Range{0, 250, false, 250}},
		{Range{To: -1, Desc: true}, Range{350, 600, true, 250}},
		{Range{From: 10, To: 20, Limit: 5}, Range{10, 15, false, 5}},
		{Range{From: 600, To: 600}, Range{600, 600, false, 250}},
	} {
		if got, err := c.r.Within(l); err != nil || got != c.want {
			t.Errorf("%+v: %+v %v, want %+v", c.r, got, err, c.want)
		}
	}
}

func TestAPositionIsReachedFromTheNearerEnd(t *testing.T) {
	l := Line{Length: 5}
	for position, want := range []struct {
		pass int64
		tail bool
	}{{0, false}, {1, false}, {2, false}, {1, true}, {0, true}} {
		if pass, tail := l.Nearer(int64(position)); pass != want.pass || tail != want.tail {
			t.Errorf("%d: pass %d, from the tail %v", position, pass, tail)
		}
	}
}

func TestPrioritiesAreSpelledAsTheSeedDoes(t *testing.T) {
	var p [2]Priority
	if err := json.Unmarshal([]byte(`["Med","High"]`), &p); err != nil || p != [2]Priority{Med, High} {
		t.Errorf("%v %v", p, err)
	}
	if text, err := json.Marshal(p); err != nil || string(text) != `["Med","High"]` {
		t.Errorf("%s %v", text, err)
	}
	if err := json.Unmarshal([]byte(`["Low"]`), &[1]Priority{}); err == nil {
		t.Error("Low is no priority")
	}
}
