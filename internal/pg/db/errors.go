package db

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/session"
	"github.com/postern-dev/postern/internal/safe"
	"github.com/postern-dev/postern/internal/twin"
)

// sentence is the name of the violated constraint as the schema gives it.
func sentence(e *pgconn.PgError) string {
	table, day, ok := strings.Cut(e.TableName, "_")
	if key := keys[table]; ok && key != "" && day[0] >= '0' && day[0] <= '9' &&
		e.ConstraintName == e.TableName+"_pkey" {
		return key
	}
	return e.ConstraintName
}

// Known turns an error of the driver into a fault where one is meant, and leaves the rest alone. It is for what has
// changed nothing: see commitUnknown and written for what may have.
func Known(err error) error {
	if err == nil {
		return nil
	}
	var f *fault.Error
	if errors.As(err, &f) {
		return err
	}
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		if lost(err) {
			return unavailable(err)
		}
		return err
	}
	if lack := Lacking("", err); lack != nil {
		return lack
	}
	name := sentence(e)
	if kind, ok := kinds[name]; ok {
		return fault.New(kind, string(kind), "%s", strings.ReplaceAll(name, "_", " ")).Because(err)
	}
	if said := session.Exhausted(err); said != "" {
		return exhausted(e, said)
	}
	switch {
	case e.Code == "55P03", e.Code == "57014":
		return fault.New(fault.Retry, "overloaded",
			"the database did not get to this in time").After(time.Second).Because(err)
	case strings.HasPrefix(e.Code, "08"), strings.HasPrefix(e.Code, "57P"), e.Code == "25006", fatal(e):
		return unavailable(err)
	}
	return err
}

// exhausted is the fault of a server that has run out of something, which said names. What its disk, its memory and its
// connections are short of may be there later; a limit of one statement (54) stays.
func exhausted(e *pgconn.PgError, said string) error {
	switch {
	case e.Code == "53100":
		return fault.New(fault.Retry, "disk_full", "%s", said).After(10 * time.Second).Because(e)
	case strings.HasPrefix(e.Code, "54"):
		return fault.New(fault.Internal, "internal", "%s", said).Because(e)
	}
	return fault.New(fault.Retry, "database_unavailable", "%s", said).After(time.Second).Because(e)
}

// fatal says whether the server ended the session with an error. Its Severity is in the language of the server.
func fatal(e *pgconn.PgError) bool {
	return e.SeverityUnlocalized == "FATAL" || e.SeverityUnlocalized == "PANIC"
}

// refused says whether the server refused what was sent, and stays to be asked: then it has changed nothing.
func refused(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && (!fatal(e) || twin.Planted("fatal_is_refusal"))
}

// lost says whether err comes from a connection that broke, or was not there, and not from what was asked.
func lost(err error) bool {
	var op net.Error
	var number syscall.Errno
	var connect *pgconn.ConnectError
	switch {
	case errors.Is(err, context.Canceled):
		return false
	case errors.As(err, &op), errors.As(err, &number), errors.As(err, &connect), pgconn.Timeout(err):
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, pgconn.ErrConnClosed)
}

// broken is known for what was done on conn and not committed. Where conn has ended by that, nothing was done, even if
// no list knows the error.
func broken(conn *pgxpool.Conn, err error) error {
	if lack := Lacking(conn.Conn().Config().User, err); lack != nil && fault.KindOf(err) == fault.Internal {
		return lack
	}
	err = Known(err)
	switch {
	case err == nil, fault.KindOf(err) != fault.Internal, !conn.Conn().IsClosed():
		return err
	case errors.Is(err, context.Canceled), unprepared(err), errors.As(err, new(*safe.Panic)):
		return err
	}
	return unavailable(err)
}

// written makes "commit_unknown" of the error of a statement that is a transaction of its own, unless the server has
// refused it, it was never sent, or the caller has ended it.
func written(err error) error {
	var connect *pgconn.ConnectError
	switch {
	case err == nil, refused(err), pgconn.SafeToRetry(err), errors.As(err, &connect), errors.Is(err, context.Canceled):
		return err
	case fault.KindOf(err) != fault.Internal:
		return err
	}
	return commitUnknown(err)
}

// commitUnknown says that something was committed or was not, and that a repetition under its key tells.
func commitUnknown(err error) error {
	return fault.New(fault.Retry, "commit_unknown",
		"the database did not say whether this was committed: send it again, with the same Idempotency-Key if it has one").
		After(time.Second).Because(err)
}

func unavailable(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	if err == context.DeadlineExceeded { //nolint:errorlint // the pool's own, for want of a free connection: those of connections wrap it
		return fault.New(fault.Retry, "database_unavailable",
			"no connection to the database was free in time").After(time.Second).Because(err)
	}
	return fault.New(fault.Retry, "database_unavailable",
		"the database cannot be reached").After(time.Second).Because(err)
}

// IsNoRows says whether a statement that was to return one row returned none.
func IsNoRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }

// unprepared says whether a prepared statement is no longer what it was: the migration of a newer program has changed a
// type of what it returns, or somebody has dropped it. pgx prepares anew what it has prepared by itself, and not what
// has practised: such a connection is closed.
func unprepared(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && (e.Code == "26000" || e.Code == "0A000" && e.Routine == "RevalidateCachedQuery")
}
