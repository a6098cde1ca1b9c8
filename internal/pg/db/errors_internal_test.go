package db

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postern-dev/postern/internal/fault"
)

// An error tells whether a write may have happened by what ended it: the server while the session goes on (refused),
// the server with the session (FATAL, in any language), the network, or the caller.
func TestErrorsOfTheDriverSayWhatIsKnown(t *testing.T) {
	german := &pgconn.PgError{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "57P01",
		Message: "Verbindung wird abgebrochen aufgrund von Anweisung des Administrators"}
	panics := &pgconn.PgError{Severity: "PANIK", SeverityUnlocalized: "PANIC", Code: "XX000"}
	reset := &net.OpError{Op: "read", Err: syscall.ECONNRESET}
	for _, c := range []struct {
		name         string
		err          error
		read, writes string
	}{
		{"FATAL", german, "database_unavailable", "commit_unknown"},
		{"PANIC", panics, "database_unavailable", "commit_unknown"},
		{"reset", reset, "database_unavailable", "commit_unknown"},
		{"end of stream", fmt.Errorf("receive message failed: %w", io.ErrUnexpectedEOF), "database_unavailable", "commit_unknown"},
		{"closed", pgconn.ErrConnClosed, "database_unavailable", "commit_unknown"},
		{"deadline", context.DeadlineExceeded, "database_unavailable", "commit_unknown"},
		{"unheard of", errors.New("something of a driver to come"), "internal", "commit_unknown"},
		{"not connected", &pgconn.ConnectError{}, "database_unavailable", "database_unavailable"},
		{"lock timeout", &pgconn.PgError{SeverityUnlocalized: "ERROR", Code: "55P03"}, "overloaded", "overloaded"},
		{"refused", &pgconn.PgError{SeverityUnlocalized: "ERROR", Code: "42601"}, "internal", "internal"},
		{"the caller went", context.Canceled, "internal", "internal"},
	} {
		if code := fault.CodeOf(Known(c.err)); code != c.read {
			t.Errorf("%s: a read says %q, want %q", c.name, code, c.read)
		}
		if code := fault.CodeOf(Known(written(c.err))); code != c.writes {
			t.Errorf("%s: a write says %q, want %q", c.name, code, c.writes)
		}
	}
	if Known(written(nil)) != nil {
		t.Error("no error is one")
	}
}
