package pgtest

import (
	"hash/fnv"
	"os"
	"strconv"
	"time"
)

// Turn says whether one case of a long list is tried in this run: a third of them is, by the day, where all would take
// minutes. POSTERN_TEST_TURN=all tries all, and 0, 1 or 2 one third.
func Turn(name string) bool {
	of := os.Getenv("POSTERN_TEST_TURN")
	if of == "all" {
		return true
	}
	turn, err := strconv.ParseUint(of, 10, 64)
	if err != nil {
		turn = uint64(time.Now().Unix() / 86400)
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return h.Sum64()%3 == turn%3
}
