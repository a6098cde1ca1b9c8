package httpapi

import (
	"bytes"
	"encoding/json"
	"math/big"
)

// equalJSON compares values as the database does: key order and the writing of a number do not count.
func equalJSON(a, b any) bool {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k, v := range x {
			w, ok := y[k]
			if !ok || !equalJSON(v, w) {
				return false
			}
		}
		return true
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !equalJSON(x[i], y[i]) {
				return false
			}
		}
		return true
	case json.Number:
		y, ok := b.(json.Number)
		return ok && (x == y || equalNumber(x, y))
	}
	return a == b
}

// equalNumber compares two numbers: exactly, unless one is longer than 400 characters or has an exponent. Those are
// compared as rounded to 200 bits, since an exact value could take as much memory as a client likes.
func equalNumber(a, b json.Number) bool {
	if len(a) > 400 || len(b) > 400 || bytes.ContainsAny([]byte(a+b), "eE") {
		x, _, err1 := big.ParseFloat(string(a), 10, 200, big.ToNearestEven)
		y, _, err2 := big.ParseFloat(string(b), 10, 200, big.ToNearestEven)
		return err1 == nil && err2 == nil && x.Cmp(y) == 0
	}
	x, ok1 := new(big.Rat).SetString(string(a))
	y, ok2 := new(big.Rat).SetString(string(b))
	return ok1 && ok2 && x.Cmp(y) == 0
}
