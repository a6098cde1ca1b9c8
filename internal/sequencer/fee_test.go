package sequencer_test

import (
	"math"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/sequencer"
)

func TestARetryOffersMoreUpToItsCap(t *testing.T) {
	percent := outbox.Fee{Kind: "percent", BumpPercent: 10, CapPercent: 200, Initial: "50"}
	stepwise := outbox.Fee{Kind: "step", Step: "30", CapPercent: 200}
	uncapped := outbox.Fee{Kind: "percent", BumpPercent: 10}
	for _, c := range []struct {
		name              string
		d                 outbox.Fee
		first, prev, want string
	}{
		{"no fee yet: the dispatcher's", percent, "", "", "50"},
		{"no fee at all: the worker's own", stepwise, "", "", ""},
		{"ten percent", percent, "100", "100", "110"},
		{"rounded up", percent, "101", "101", "112"},
		{"at least one more", percent, "3", "3", "4"},
		{"no less than the cap", percent, "100", "195", "200"},
		{"at the cap it stays", percent, "100", "200", "200"},
		{"above the cap it stays too, and never falls", percent, "100", "500", "500"},
		{"the cap is rounded down", outbox.Fee{Kind: "percent", BumpPercent: 100, CapPercent: 150}, "3", "3", "4"},
		{"nothing offered first: nothing is the cap", percent, "0", "0", "0"},
		{"without cap", uncapped, "1", "1000", "1100"},
		{"more than 64 bits", percent, "100000000000000000000000001", "100000000000000000000000001",
			"110000000000000000000000002"},
		{"a step", stepwise, "100", "130", "160"},
		{"a step, capped", stepwise, "100", "190", "200"},
		{"no step named", outbox.Fee{Kind: "step", CapPercent: 200}, "100", "130", "130"},
		{"none", outbox.Fee{Kind: "none", Initial: "9"}, "100", "130", "130"},
		{"only the first is known", percent, "100", "", "110"},
		{"only the last is known", percent, "", "100", "110"},
		{"no number", percent, "a lot", "a lot", "a lot"},
		{"no sign", percent, "-5", "-5", "-5"},
		{"the first is no number", percent, "a lot", "100", "110"},
	} {
		if got := sequencer.Fee(c.d, c.first, c.prev); got != c.want {
			t.Errorf("%s: after %q (first %q) comes %q, want %q", c.name, c.prev, c.first, got, c.want)
		}
	}
}

// S2.9: the factor goes with the number of the attempt, whether a fee is known or not.
func TestTheFactorOfAFeeGoesWithTheAttempt(t *testing.T) {
	percent := outbox.Fee{Kind: "percent", BumpPercent: 10, CapPercent: 200}
	uncapped := outbox.Fee{Kind: "percent", BumpPercent: 100}
	for _, c := range []struct {
		d       outbox.Fee
		attempt int
		want    string
	}{
		{percent, 0, "1"}, {percent, 1, "1"}, {percent, 2, "1.1"}, {percent, 3, "1.21"}, {percent, 4, "1.331"},
		{percent, 5, "1.4641"}, {percent, 6, "1.61051"}, {percent, 7, "1.771561"}, {percent, 8, "1.948718"},
		{percent, 9, "2"}, {percent, 1_000_000, "2"},
		{uncapped, 11, "1024"}, {uncapped, 1 << 30, "1000000000"},
		{outbox.Fee{Kind: "percent", BumpPercent: 1_000_000}, 9, "1000000000"},
		{outbox.Fee{Kind: "percent", BumpPercent: 10, CapPercent: 100}, 9, "1"},
		{outbox.Fee{Kind: "percent", CapPercent: 200}, 9, "1"},
		{outbox.Fee{Kind: "step", Step: "30", BumpPercent: 10}, 9, "1"},
		{outbox.Fee{Kind: "none", BumpPercent: 10}, 9, "1"},
	} {
		if got := sequencer.FeeFactor(c.d, c.attempt); got != c.want {
			t.Errorf("%+v, attempt %d: %s, want %s", c.d, c.attempt, got, c.want)
		}
	}
}

func TestTheNumberOfRetriesIsTheFirstThatSomebodyNames(t *testing.T) {
	n := func(i int) *int { return &i }
	for _, c := range []struct {
		own, dispatcher, worker *int
		pool                    string
		want                    int
	}{
		{n(0), n(5), n(7), "p", 0}, {nil, n(5), n(7), "", 5}, {nil, nil, n(7), "p", 7}, {n(-1), n(5), nil, "", 0},
		{nil, nil, nil, "", 10}, {nil, nil, nil, "p", 5},
	} {
		d := &outbox.Dispatcher{Pool: c.pool, Retry: outbox.Retry{MaxRetries: c.dispatcher}}
		if got := sequencer.MaxRetries(c.own, d, c.worker); got != c.want {
			t.Errorf("got %d, want %d", got, c.want)
		}
	}
}

func TestTheDelayDoublesWithFullJitterUpToItsCap(t *testing.T) {
	byDefault := outbox.DefaultDispatcher()
	d := byDefault.Backoff() // 15 s, factor 2, cap 20 min
	fixed := outbox.Retry{Kind: "fixed", Initial: outbox.Duration(3 * time.Minute), Factor: 9}
	endless := outbox.Retry{Kind: "exponential", Initial: outbox.Duration(time.Second), Factor: 10}
	for _, c := range []struct {
		name   string
		d      outbox.Retry
		n      int
		chance float64
		least  time.Duration
		want   time.Duration
	}{
		{"the first", d, 1, 0.5, 0, 7500 * time.Millisecond},
		{"counted from one", d, 0, 0.5, 0, 7500 * time.Millisecond},
		{"the third", d, 3, 0.5, 0, 30 * time.Second},
		{"the cap", d, 10, 0.5, 0, 10 * time.Minute},
		{"the cap, however many", d, math.MaxInt, 0.5, 0, 10 * time.Minute},
		{"no chance, no delay", d, 3, 0, 0, 0},
		{"the worker's least", d, 1, 0.5, time.Minute, time.Minute},
		{"the worker's least, beyond the cap", d, 1, 0.5, time.Hour, time.Hour},
		{"fixed", fixed, 7, 0.1, 0, 3 * time.Minute},
		{"fixed, and the worker's least", fixed, 7, 0.1, time.Hour, time.Hour},
		{"without cap it stays a duration", endless, 1000, 0.5, 0, math.MaxInt64 / 4},
	} {
		got := sequencer.RetryDelay(c.d, c.n, c.chance, c.least)
		if diff := got - c.want; diff.Abs() > time.Microsecond {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
