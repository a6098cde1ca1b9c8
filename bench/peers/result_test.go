package main

import (
	"math"
	"testing"
)

func TestTheIntervalOfAMedianComesFromOrderStatistics(t *testing.T) {
	nine := []float64{9, 1, 8, 2, 7, 3, 6, 4, 5}
	for _, c := range []struct {
		list            []float64
		low, high, sure float64
	}{
		{nine, 2, 8, 0.961},
		{nine[:3], 1, 9, 0.75},
		{nine[:1], 9, 9, 0},
		{[]float64{1, 2, 3, 4, 5, 6}, 1, 6, 0.969},
	} {
		low, high, sure := interval(c.list)
		if low != c.low || high != c.high || math.Abs(sure-c.sure) > 0.001 {
			t.Errorf("%v: got %v..%v, %.3f; want %v..%v, %.3f", c.list, low, high, sure, c.low, c.high, c.sure)
		}
	}
}

func TestRatiosAreAgainstTheBestPeerOfTheSameRound(t *testing.T) {
	at := func(rates ...float64) (list []*trial) {
		for _, r := range rates {
			list = append(list, &trial{rate: r, p50: r})
		}
		return list
	}
	as := func(name string, promises bool, violations int, rates ...float64) *measured {
		return &measured{system: system{name: name, runs: []string{fifo, idle}, fifo: promises}, violations: violations, runs: len(rates), trials: at(rates...)}
	}
	all := []*measured{
		as(ours, true, 0, 300, 400, 500),
		as("a", true, 0, 100, 200, 50),
		as("b", true, 0, 150, 100, 100),
		as("unordered", false, 0, 900, 900, 900),
		as("disordered", true, 1, 900, 900, 900),
	}
	got := lines(scenario{kind: fifo}, all)[0]
	if *got.Ratio != 2 || *got.RatioMin != 2 || *got.RatioMax != 5 || *got.Rate != 400 { // 300/150, 400/200, 500/100
		t.Errorf("fifo: got %v (%v-%v) and rate %v", *got.Ratio, *got.RatioMin, *got.RatioMax, *got.Rate)
	}
	if got.BestPeer != "a" && got.BestPeer != "b" {
		t.Errorf("fifo: the best peer is %s", got.BestPeer)
	}
	got = lines(scenario{kind: idle}, all[:3])[0] // of latencies the least is the best
	if *got.Ratio != 4 || got.BestPeer != "a" && got.BestPeer != "b" {
		t.Errorf("idle-latency: got %v against %s", *got.Ratio, got.BestPeer)
	}
	all[0].violations = 1
	if got = lines(scenario{kind: fifo}, all)[0]; got.Rate != nil || got.Ratio != nil {
		t.Errorf("a wrong run of ours has a rate: %+v", got)
	}
}

func TestOursIsFoundAmongTheLinesOfItsRun(t *testing.T) {
	out := []byte(`{"scenario": "idle-latency", "p50_ms": 1}` + "\n" + `{"scenario": "idle-latency-one-process", "p50_ms": 3, "p99_ms": 9, "rate": 1}`)
	if r, err := ourLine(out, scenario{kind: idle}.line()); err != nil || r.P50 != 3 || r.P99 != 9 || r.Rate != 1 {
		t.Errorf("got %+v, %v", r, err)
	}
	if r, err := ourLine(out, e2e); err == nil {
		t.Errorf("got %+v of a run that has no such line", r)
	}
}
