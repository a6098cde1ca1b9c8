package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// line is what is told of a system in a scenario. Rates are completions a second, times are milliseconds. What
// is missing was not measured; the note says why.
type line struct {
	Scenario   string   `json:"scenario"`
	System     string   `json:"system"`
	Runs       int      `json:"runs"`
	Rate       *float64 `json:"rate"` // median of the runs
	RateMin    *float64 `json:"rate_min"`
	RateMax    *float64 `json:"rate_max"`
	P50        *float64 `json:"p50_ms,omitempty"` // median of the runs
	P99        *float64 `json:"p99_ms,omitempty"`
	BestPeer   string   `json:"best_peer,omitempty"` // the one with the highest median
	Ratio      *float64 `json:"ratio_to_best_peer"`  // median of the rounds, each against the best peer of that round
	RatioMin   *float64 `json:"ratio_min"`           // the interval for that median
	RatioMax   *float64 `json:"ratio_max"`           //
	Confidence *float64 `json:"ratio_confidence"`    // how likely the interval holds it
	Violations int      `json:"violations"`          // of order and completeness, all runs and the probe together
	Peer       bool     `json:"peer"`                // it promises what the scenario is about
	Note       string   `json:"note"`
}

// measured is what the rounds of a scenario gave for one system: a trial for each round, nil where it did not run.
type measured struct {
	system
	trials     []*trial
	violations int
	runs       int
	notes      []string
}

// value is what ratios of a scenario are made of. For latencies less is better; their ratios are told as they are.
func (c scenario) value(t *trial) float64 {
	if c.kind == idle {
		return t.p50
	}
	return t.rate
}

// lines makes the lines of a scenario.
func lines(c scenario, all []*measured) []line {
	best := make([]float64, rounds(all)) // of the peers, in each round
	name, highest := "", 0.0
	for _, m := range all {
		if !m.peer(c) || m.violations > 0 {
			continue
		}
		for i, t := range m.trials {
			if t != nil && better(c, c.value(t), best[i]) {
				best[i] = c.value(t)
			}
		}
		if v := median(values(c, m.trials)); better(c, v, highest) {
			name, highest = m.name, v
		}
	}
	var list []line
	for _, m := range all {
		l := line{Scenario: c.name, System: m.name, Runs: m.runs, Violations: m.violations, Peer: m.peer(c)}
		l.Note = strings.Join(append(slices.Clone(m.notes), m.note), "; ")
		var ratios []float64
		for i, t := range m.trials {
			if t != nil && best[i] > 0 {
				ratios = append(ratios, c.value(t)/best[i])
			}
		}
		if rates := of(m.trials, func(t *trial) float64 { return t.rate }); len(rates) > 0 && (m.name != ours || m.violations == 0) {
			l.Rate, l.RateMin, l.RateMax = told(median(rates)), told(slices.Min(rates)), told(slices.Max(rates))
			if c.kind == idle {
				l.P50 = told(median(of(m.trials, func(t *trial) float64 { return t.p50 })))
				l.P99 = told(median(of(m.trials, func(t *trial) float64 { return t.p99 })))
			}
			if len(ratios) > 0 {
				low, high, sure := interval(ratios)
				l.BestPeer = name
				l.Ratio, l.RatioMin, l.RatioMax, l.Confidence = told(median(ratios)), told(low), told(high), told(sure)
			}
		}
		list = append(list, l)
	}
	return list
}

func rounds(all []*measured) (n int) {
	for _, m := range all {
		n = max(n, len(m.trials))
	}
	return n
}

func better(c scenario, v, than float64) bool {
	if c.kind == idle {
		return v > 0 && (than == 0 || v < than)
	}
	return v > than
}

func of(trials []*trial, f func(*trial) float64) (list []float64) {
	for _, t := range trials {
		if t != nil {
			list = append(list, f(t))
		}
	}
	return list
}

func values(c scenario, trials []*trial) []float64 { return of(trials, c.value) }

func median(list []float64) float64 { return quantile(list, 0.5) }

// quantile is the value at or above which a share q of a list lies; for 0.5 of an even number the mean of both
// in the middle. 0 for an empty list.
func quantile(list []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(list))
	if len(s) == 0 {
		return 0
	}
	if q == 0.5 {
		return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
	}
	return s[min(len(s)-1, int(math.Ceil(q*float64(len(s))))-1)]
}

// interval is one for the median of what a list is a sample of, by order statistics: the narrowest pair of the
// k-th lowest and the k-th highest that holds it in 95 of 100 cases, or both ends if even these do not. sure is
// the share of cases in which the pair holds it. (9 values: the second of each end, 96 %.)
func interval(list []float64) (low, high, sure float64) {
	s := slices.Sorted(slices.Values(list))
	n := len(s)
	covers := func(k int) float64 { // 1 - 2 P(fewer than k of n lie on one side)
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

// told rounds to four digits, which is more than any of this is worth.
func told(v float64) *float64 {
	if v != 0 {
		scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
		v = math.Round(v*scale) / scale
	}
	return &v
}

// table is for people. A note stands once, below its table.
func table(out io.Writer, list []line) error {
	w := tabwriter.NewWriter(out, 2, 0, 2, ' ', 0)
	fmt.Fprintln(w, "scenario\tsystem\truns\trate/s\tmin-max\tp50 ms\tp99\tratio to best peer\tviolations")
	number := func(format string, v *float64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprintf(format, *v)
	}
	notes := map[string]bool{}
	var below []string
	for _, l := range list {
		ratio := "-"
		if l.Ratio != nil {
			ratio = fmt.Sprintf("%.2f (%.2f-%.2f)", *l.Ratio, *l.RatioMin, *l.RatioMax)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s..%s\t%s\t%s\t%s\t%d\n", l.Scenario, l.System, l.Runs, number("%.0f", l.Rate), number("%.0f", l.RateMin),
			number("%.0f", l.RateMax), number("%.2f", l.P50), number("%.2f", l.P99), ratio, l.Violations)
		if note := l.System + ": " + l.Note; !notes[note] {
			notes[note] = true
			below = append(below, note)
		}
	}
	slices.SortStableFunc(below, cmp.Compare[string])
	fmt.Fprint(w, "\n", strings.Join(below, "\n"), "\n")
	return w.Flush()
}
