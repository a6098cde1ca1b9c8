package httpapi

import (
	"errors"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
)

// Behind a commit, what says that nothing was done is unknown, and a refusal stays what it is.
func TestBehindACommitNothingIsSaidToBeUndone(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{fault.New(fault.Retry, "database_unavailable", "it cannot be reached"), "commit_unknown"},
		{fault.New(fault.Retry, "overloaded", "not in time"), "commit_unknown"},
		{fault.New(fault.Retry, "commit_unknown", "who knows"), "commit_unknown"},
		{fault.New(fault.Conflict, "wrong_state", "it has ended"), "wrong_state"},
		{errors.New("a mistake of ours"), "internal"},
	} {
		if got := fault.As(behindCommit(c.err)); got.Code != c.want {
			t.Errorf("%v becomes %s, want %s", c.err, got.Code, c.want)
		}
	}
}
