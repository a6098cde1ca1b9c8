package bench

import (
	"fmt"
	"math"
	"slices"
)

// Ratio is how one figure stands to another, over pairs of runs that alternated. Low and High are an interval
// for the median, from order statistics: the k-th lowest and the k-th highest pair. Sure is how likely it
// holds the median: at least 0.95 from six pairs on (of nine it is the second of each end, 0.961), and less
// of fewer, whose interval is all of them.
type Ratio struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Sure   float64 `json:"sure"`
	Pairs  int     `json:"pairs"`
}

// ratioOf makes the ratio of a list of single ones; empty, it is zero.
func ratioOf(list []float64) Ratio {
	if len(list) == 0 {
		return Ratio{}
	}
	s := slices.Sorted(slices.Values(list))
	low, high, sure := interval(s)
	return Ratio{Median: round(median(s)), Min: round(s[0]), Max: round(s[len(s)-1]), Low: round(low),
		High: round(high), Sure: round(sure), Pairs: len(s)}
}

// interval holds the median of what a sorted list is a sample of: on each side of it lies every value with
// one half, so that fewer than k of n are on one side as often as a fair coin shows it.
func interval(s []float64) (low, high, sure float64) {
	n := len(s)
	covers := func(k int) float64 {
		outside, term := 0.0, math.Pow(0.5, float64(n))
		for i := range k {
			outside += term
			term *= float64(n-i) / float64(i+1)
		}
		return 1 - 2*outside
	}
	k := 1
	for k+1 <= (n+1)/2 && covers(k+1) >= 0.95 {
		k++
	}
	return s[k-1], s[n-k], max(0, covers(k))
}

// below says whether q is less than was by more than noise: its median lies below the interval of was, and its interval
// lies below the median of was.
func (q Ratio) below(was Ratio) bool { return q.Median < was.Low && q.High < was.Median }

// compare adds the ratio of our runs to theirs, pair by pair, unless a run of either was wrong.
func (r *Result) compare(name string, ours, theirs []*trial, f func(*trial) float64) {
	if isWrong := func(t *trial) bool { return t.bad > 0 }; slices.ContainsFunc(ours, isWrong) ||
		slices.ContainsFunc(theirs, isWrong) {
		return
	}
	var list []float64
	for i := range min(len(ours), len(theirs)) {
		if d := f(theirs[i]); d > 0 {
			list = append(list, f(ours[i])/d)
		}
	}
	r.ratio(name, list...)
}

// ratio adds one.
func (r *Result) ratio(name string, list ...float64) {
	if len(list) == 0 {
		return
	}
	if r.Ratios == nil {
		r.Ratios = map[string]Ratio{}
	}
	r.Ratios[name] = ratioOf(list)
}

// String tells the median with its interval.
func (q Ratio) String() string {
	if q.Pairs < 2 {
		return fmt.Sprintf("%.3g", q.Median)
	}
	return fmt.Sprintf("%.3g (%.3g-%.3g)", q.Median, q.Low, q.High)
}

func median(list []float64) float64 {
	s := slices.Sorted(slices.Values(list))
	if len(s) == 0 {
		return 0
	}
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
