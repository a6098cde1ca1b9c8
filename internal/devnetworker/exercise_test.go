package devnetworker_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/devnetworker"
	"github.com/postern-dev/postern/internal/remotetest"
)

func TestItIsAWorker(t *testing.T) {
	t.Parallel()
	remotetest.Exercise(t, func(t *testing.T) string {
		return newBench(t, 10*time.Millisecond, devnetworker.Config{Auto: 1 << 40}).url
	})
}
