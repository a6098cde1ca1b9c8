package outbox

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// Canonical reads JSON and has each number in one way of writing, so that json.Marshal writes equal values alike,
// however a client wrote them and the database keeps them.
func Canonical(raw json.RawMessage) any { return oneWay(Parsed(raw)) }

// Parsed reads JSON and keeps the digits of its numbers. Nothing is nil, and what is no JSON is its text.
func Parsed(raw json.RawMessage) any {
	if len(raw) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return string(raw)
	}
	return v
}

func oneWay(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for k, e := range x {
			x[k] = oneWay(e)
		}
	case []any:
		for i, e := range x {
			x[i] = oneWay(e)
		}
	case json.Number:
		return oneNumber(string(x))
	}
	return v
}

// oneNumber writes 1.50, 15e-1 and 0.015E+2 alike: 1.5. One with more than 20 zeros beside its digits has an exponent.
func oneNumber(s string) json.Number {
	digits, exp := s, 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		n, err := strconv.Atoi(strings.TrimPrefix(s[i+1:], "+"))
		if err != nil {
			return json.Number(s)
		}
		digits, exp = s[:i], n
	}
	digits, negative := strings.CutPrefix(digits, "-")
	whole, fraction, _ := strings.Cut(digits, ".")
	digits, exp = strings.TrimLeft(whole+fraction, "0"), exp-len(fraction)
	short := strings.TrimRight(digits, "0")
	if short == "" {
		return "0"
	}
	exp += len(digits) - len(short)
	sign := ""
	if negative {
		sign = "-"
	}
	return json.Number(sign + written(short, exp))
}

// written is digits times ten to the power of exp.
func written(digits string, exp int) string {
	const zeros = 20
	point := len(digits) + exp // where the point stands among the digits
	switch {
	case exp >= 0 && exp <= zeros:
		return digits + strings.Repeat("0", exp)
	case exp < 0 && point > 0:
		return digits[:point] + "." + digits[point:]
	case exp < 0 && point >= -zeros:
		return "0." + strings.Repeat("0", -point) + digits
	}
	return digits + "e" + strconv.Itoa(exp)
}
