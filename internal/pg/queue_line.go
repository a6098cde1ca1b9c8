package pg

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// LineOf returns the Postern-Line of a queue: within one line fences rise, and two lines have nothing to do with each other.
// It is made of the queue's id, which is one over all contexts and comes back with a queue that was reaped, and of a number
// of this installation, so that neither the name nor how many queues there are can be read from it. A queue without a name
// holds one transaction and has none.
func (s *Store) LineOf(queue string, id int64) string {
	if queue == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(strconv.FormatInt(s.QuarantineView().lines, 10) + " " + strconv.FormatInt(id, 10)))
	return hex.EncodeToString(sum[:12])
}
