package app

import (
	"fmt"
	"strconv"
)

// Rate is how often something may happen in a second; zero is written off: as often as anybody likes.
type Rate int

// UnmarshalText reads off, or a whole number from 1 to 1000000.
func (r *Rate) UnmarshalText(b []byte) error {
	if string(b) == "off" {
		*r = 0
		return nil
	}
	n, err := strconv.Atoi(string(b))
	if err != nil || n < 1 || n > 1_000_000 {
		return fmt.Errorf("is %.64q: want a number from 1 to 1000000, or off", b)
	}
	*r = Rate(n)
	return nil
}

// String writes r as it is read.
func (r Rate) String() string {
	if r == 0 {
		return "off"
	}
	return strconv.Itoa(int(r))
}
