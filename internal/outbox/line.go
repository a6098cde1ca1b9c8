package outbox

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// Line says within which calls a fence rises: those of one queue, over all contexts and also after the queue was
// reaped and came back. The zero Line stands for work without a queue, whose fences have nothing to do with each
// other. It is a value of two numbers, and becomes text only where a worker reads it, since the text costs more than
// a call of a worker that is not remote.
type Line struct {
	Installation int64 // a number drawn once for a database
	Queue        int64 // the id of the queue
}

// String returns the value of the header Postern-Line, "" for the zero Line. It is a hash, so that neither the name
// nor the number of queues can be read from it.
func (l Line) String() string {
	if l == (Line{}) {
		return ""
	}
	sum := sha256.Sum256([]byte(strconv.FormatInt(l.Installation, 10) + " " + strconv.FormatInt(l.Queue, 10)))
	return hex.EncodeToString(sum[:12])
}
