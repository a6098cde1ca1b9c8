package fault

import (
	"fmt"
	"strings"
)

// Many says how many there are of a thing, as people do: 1 queue, 2 queues, 3 batches. one is its name where there is
// one of it.
func Many[N ~int | ~int32 | ~int64](n N, one string) string {
	name := one + "s"
	switch {
	case n == 1:
		name = one
	case strings.HasSuffix(one, "ch"), strings.HasSuffix(one, "s"), strings.HasSuffix(one, "x"):
		name = one + "es"
	case strings.HasSuffix(one, "y"):
		name = strings.TrimSuffix(one, "y") + "ies"
	}
	return fmt.Sprintf("%d %s", n, name)
}
