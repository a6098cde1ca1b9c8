package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestWhatStoodStillIsTheLongestTimeWithoutAnything(t *testing.T) {
	start := time.Now()
	o := &schedule{start: start, rate: 1000, times: map[string]*histogram{}, at: map[string][]time.Time{}}
	for i, ms := range []time.Duration{40, 3, 5, 4, 47} { // not as they come; the last was meant 43 ms ago
		o.add("post", i, start.Add(ms*time.Millisecond))
	}
	if h := o.between("post"); h.n != 5 || h.max != 35*time.Millisecond {
		t.Errorf("of %d times the longest without anything is %s, want 35 ms of five", h.n, h.max)
	}
	if o.between("call") != nil {
		t.Error("what never happened stood still")
	}
}

func TestAHistogramKeepsQuantilesOfAnyDuration(t *testing.T) {
	for i := range 64 * 57 {
		if u := upper(i); bucket(u) != i || bucket(u+1) != i+1 {
			t.Fatalf("bucket %d ends at %d: there it is %d, after it %d", i, u, bucket(u), bucket(u+1))
		}
	}
	r := rand.New(rand.NewPCG(3, 4))
	var one, two histogram
	var all []time.Duration
	for i := range 20000 {
		d := time.Duration(math.Exp(r.Float64()*16)) * time.Microsecond
		all = append(all, d)
		if i%3 == 0 {
			one.add(d)
		} else {
			two.add(d)
		}
	}
	one.merge(&two)
	slices.Sort(all)
	for _, q := range []float64{0, 0.01, 0.5, 0.99, 0.999, 1} {
		exact, got := all[max(int(math.Ceil(q*float64(len(all)))), 1)-1], one.quantile(q)
		if got < exact || float64(got-exact) > 0.016*float64(exact)+1 {
			t.Errorf("quantile %g is %s, want %s and at most 1.6 %% more", q, got, exact)
		}
	}
	if one.n != 20000 || one.max != all[len(all)-1] || new(histogram).quantile(0.5) != 0 {
		t.Errorf("%d counted, the longest %s", one.n, one.max)
	}
}
