package sequencer

import (
	"fmt"
	"math/big"
	"strings"

	"github.com/postern-dev/postern/internal/outbox"
)

// Fee is what the next attempt offers, in digits, when the first offered first and the one before it prev (S2.9): with
// kind "percent" max(prev+1, ceil(prev * (100+bump) / 100)), with "step" prev + step, capped at cap percent of the
// first but never below prev; with "none" prev again. Without any fee yet it is d.Initial, and "" leaves it to the
// worker. A prev that is no number is handed on as it is.
func Fee(d outbox.Fee, first, prev string) string {
	if prev == "" {
		prev = first
	}
	if first == "" {
		first = prev
	}
	if prev == "" {
		return d.Initial
	}
	was, ok := digits(prev)
	if !ok {
		return prev
	}
	fee := new(big.Int)
	switch d.Kind {
	case "percent":
		fee.Mul(was, big.NewInt(int64(100+d.BumpPercent)))
		fee.Add(fee, big.NewInt(99)).Div(fee, big.NewInt(100)) // ceil
		if least := new(big.Int).Add(was, big.NewInt(1)); fee.Cmp(least) < 0 {
			fee = least
		}
	case "step":
		step, ok := digits(d.Step)
		if !ok {
			return prev
		}
		fee.Add(was, step)
	default:
		return prev
	}
	if begun, ok := digits(first); ok && d.CapPercent > 0 {
		most := new(big.Int).Mul(begun, big.NewInt(int64(d.CapPercent)))
		if most.Div(most, big.NewInt(100)); fee.Cmp(most) > 0 {
			fee = most
		}
	}
	if fee.Cmp(was) < 0 {
		return prev
	}
	return fee.String()
}

// FeeFactor is what the first fee is to be multiplied by for an attempt, counted from 1: "1", "1.1", "1.21", up to
// cap_percent of the first. A worker goes by it where no fee is known, since neither dispatcher nor worker named one.
// It rises by kind percent alone, and is rounded up to a millionth, as fees are to a whole one. Without a cap it ends
// at a thousand million, so that any number of attempts takes some two thousand steps at most.
func FeeFactor(d outbox.Fee, attempt int) string {
	if attempt <= 1 || d.Kind != "percent" || d.BumpPercent <= 0 {
		return "1"
	}
	const one, most = 1_000_000, 1_000_000_000 * 1_000_000
	limit := int64(most)
	if d.CapPercent > 0 {
		limit = min(most, max(one, int64(d.CapPercent)*one/100))
	}
	factor := int64(one)
	for i := 1; i < attempt && factor < limit; i++ {
		whole, part := factor/100, factor%100
		bumped := int64(100 + d.BumpPercent)
		factor = min(limit, whole*bumped+(part*bumped+99)/100)
	}
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%d.%06d", factor/one, factor%one), "0"), ".")
}

// digits reads a number without sign.
func digits(s string) (*big.Int, bool) {
	for _, c := range s {
		if c < '0' || c > '9' {
			return nil, false
		}
	}
	return new(big.Int).SetString(s, 10)
}
