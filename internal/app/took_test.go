package app

import (
	"fmt"
	"io"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
)

// A connection that is lost within a step of a start is a database that is not there, and no fault of the program.
func TestAStepThatLosesItsConnectionIsToBeTriedAgain(t *testing.T) {
	t.Parallel()
	for _, lost := range []error{
		fmt.Errorf("read the state of the migrations: %w", io.ErrUnexpectedEOF),
		fault.New(fault.Retry, "commit_unknown", "the connection was lost at the commit"),
	} {
		err := step(t.Context(), "postgres://h/d", "read", func() error { return lost })
		if fault.CodeOf(err) != "database_unavailable" || fault.KindOf(err) != fault.Retry {
			t.Errorf("%s %s: %v", fault.KindOf(err), fault.CodeOf(err), err)
		}
	}
	if err := step(t.Context(), "postgres://h/d", "read", func() error { return nil }); err != nil {
		t.Error(err)
	}
}
