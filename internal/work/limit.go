package work

import (
	"time"

	"github.com/riverqueue/river"
)

// Timeout is how long River lets a job run: its own minute, or an hour where a job goes through a whole hour or day of
// transactions, which it does at leisure. It has an end, since River takes what has none for running for ever when its
// process died.
func (w *worker[T]) Timeout(*river.Job[T]) time.Duration {
	switch any(*new(T)).(type) {
	case rollupArgs, partitionArgs:
		return time.Hour
	}
	return 0
}
