package db

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
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
		{"end of stream", fmt.Errorf("receive message failed: %w", io.ErrUnexpectedEOF),
			"database_unavailable", "commit_unknown"},
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

// A server that has run out of something says so, and so do we, with what to do: it is not away.
func TestWhatTheServerHasRunOutOfIsTold(t *testing.T) {
	locks := "You might need to increase max_locks_per_transaction."
	for _, c := range []struct{ state, message, hint, code, want string }{
		{"53100", "could not extend file", "Check free disk space.", "disk_full", "make room on its disk"},
		{"53200", "out of shared memory", locks, "database_unavailable", "ALTER SYSTEM SET max_locks_per_transaction"},
		{"53200", "Speicher aufgebraucht", "", "database_unavailable", "more memory"},
		{"53300", "sorry, too many clients already", "", "database_unavailable", "max_connections"},
		{"53400", "too many files", "", "database_unavailable", "raise the limit that it names"},
		{
			"54001", "stack depth limit exceeded", `Increase the configuration parameter "max_stack_depth" (now 2 MB)`,
			"internal", "ALTER SYSTEM SET max_stack_depth",
		},
		{"54000", "index row size 2720 exceeds the maximum", "", "internal", "index row size"},
	} {
		err := Known(&pgconn.PgError{SeverityUnlocalized: "ERROR", Code: c.state, Message: c.message, Hint: c.hint})
		said := fault.As(err).Detail
		if fault.CodeOf(err) != c.code || !strings.Contains(said, c.want) || !strings.Contains(said, c.message) ||
			!strings.Contains(said, c.state) || strings.Contains(said, "reached:") {
			t.Errorf("%s is %s: %s, want %s: %s", c.state, fault.CodeOf(err), said, c.code, c.want)
		}
	}
}
