package pg

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// All connections of a process that starts on a slow server are used too early: it is said once.
func TestThatConnectionsAreHastyIsSaidOnce(t *testing.T) {
	var said bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&said, nil)))
	defer slog.SetDefault(before)
	hastySaid.Store(0)
	for i := range 20 {
		hasty(i, 40, "SELECT 1")
	}
	if n := strings.Count(said.String(), "new connections are used"); n != 1 {
		t.Errorf("said %d times: %s", n, said.String())
	}
}
