package sequencer

import (
	"math/big"

	"github.com/postern-dev/postern/internal/outbox"
)

// Fee is what the next attempt offers, in digits, when the first offered first and the one before it
// prev (S2.9): with kind "percent" max(prev+1, ceil(prev * (100+bump) / 100)), with "step" prev + step,
// capped at cap percent of the first but never below prev; with "none" prev again. Without any fee yet
// it is d.Initial, and "" leaves it to the worker. What is no number is handed on as it is.
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

// digits reads a number without sign.
func digits(s string) (*big.Int, bool) {
	for _, c := range s {
		if c < '0' || c > '9' {
			return nil, false
		}
	}
	return new(big.Int).SetString(s, 10)
}
