package main

import (
	"path/filepath"
	"slices"
	"testing"
)

// calls makes the events of calls that follow each other, each given as key, seq.
func calls(pairs ...[2]int) []event {
	var r record
	for _, p := range pairs {
		r.begin(p[0], p[1])
		r.end(p[0], p[1])
	}
	return r.events
}

func TestTheCheckerNoticesWhatAFIFOMustNotDo(t *testing.T) {
	inOrder := calls([2]int{0, 0}, [2]int{1, 0}, [2]int{1, 1}, [2]int{0, 1}, [2]int{0, 2}, [2]int{1, 2})
	both := slices.Concat(inOrder[:4], []event{{1, 2}, {1, 4}, {1, 3}, {1, 5}}, calls([2]int{0, 1}, [2]int{0, 2}))
	for _, c := range []struct {
		name   string
		events []event
		whole  bool
		want   verdict
	}{
		{"in order", inOrder, true, verdict{ended: 6}},
		{"two of a key swapped", calls([2]int{0, 0}, [2]int{1, 0}, [2]int{0, 2}, [2]int{0, 1}, [2]int{1, 1}, [2]int{1, 2}), true, verdict{ended: 6, swapped: 2}},
		{"the first of a key last", calls([2]int{0, 1}, [2]int{0, 2}, [2]int{0, 0}, [2]int{1, 0}, [2]int{1, 1}, [2]int{1, 2}), true, verdict{ended: 6, swapped: 2}},
		{"two of a key at once", both, true, verdict{ended: 6, together: 1}},
		{"one twice", slices.Concat(inOrder, calls([2]int{0, 1})), true, verdict{ended: 6, repeated: 1}},
		{"one missing", inOrder[:10], true, verdict{ended: 5, missing: 1}},
		{"cut short", inOrder[:10], false, verdict{ended: 5}},
		{"begun, not ended", inOrder[:11], true, verdict{ended: 5, missing: 1}},
		{"a row of nobody", slices.Concat(inOrder, calls([2]int{7, 0})), true, verdict{ended: 6, strange: 2}},
	} {
		if got := check(c.events, 2, 3, c.whole); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestARecordSurvivesItsFile(t *testing.T) {
	r := record{events: calls([2]int{3, 0}, [2]int{70000, 9})}
	path := filepath.Join(t.TempDir(), "record")
	if err := r.write(path); err != nil {
		t.Fatal(err)
	}
	got, err := readRecord(path)
	if err != nil || !slices.Equal(got, r.events) {
		t.Fatalf("read %v, %v; want %v", got, err, r.events)
	}
}
