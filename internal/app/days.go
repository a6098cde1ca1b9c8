package app

import (
	"fmt"
	"strconv"
	"time"
)

// Days is a number of days; zero is written keep: for ever.
type Days int

// UnmarshalText reads keep, or a whole number of days from 1 to 36500.
func (d *Days) UnmarshalText(b []byte) error {
	if string(b) == "keep" {
		*d = 0
		return nil
	}
	n, err := strconv.Atoi(string(b))
	if err != nil || n < 1 || n > 36500 {
		return fmt.Errorf("is %.64q: want a number from 1 to 36500, or keep", b)
	}
	*d = Days(n)
	return nil
}

// String writes d as it is read.
func (d Days) String() string {
	if d == 0 {
		return "keep"
	}
	return strconv.Itoa(int(d))
}

// Long is how long that is; 0 for ever.
func (d Days) Long() time.Duration { return time.Duration(d) * 24 * time.Hour }
