package app

import (
	"fmt"
	"strconv"
	"strings"
)

// Size is a number of bytes, written as people do: 512KiB, 1MiB.
type Size int64

var units = []struct {
	name string
	size Size
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}, {"", 1}}

// UnmarshalText reads a whole number with one of the units B, KiB, MiB and GiB, or without one.
func (s *Size) UnmarshalText(b []byte) error {
	for _, u := range units {
		digits, ok := strings.CutSuffix(string(b), u.name)
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if ok && err == nil && n >= 0 && n <= 1<<50/int64(u.size) {
			*s = Size(n) * u.size
			return nil
		}
	}
	return fmt.Errorf("is %.64q: want a number with KiB, MiB or GiB, such as 1MiB", b)
}

// String writes s with the largest unit that divides it.
func (s Size) String() string {
	for _, u := range units[:3] {
		if s >= u.size && s%u.size == 0 {
			return strconv.FormatInt(int64(s/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}
