package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/fault"
)

// unfit is the code of all faults of a database, or of what stands before it, that cannot be used.
const unfit = "database_unfit"

// leastVersion is the oldest PostgreSQL that our SQL works with.
const leastVersion = 15

// told judges a server by what it says of itself when a session begins, which costs no statement. A value that a
// pooler leaves out is not judged here.
func told(status func(name string) string) error {
	if encoding := status("server_encoding"); encoding != "" && encoding != "UTF8" {
		return notFit("the database has the encoding %s, which does not keep every text as it is: want UTF8. "+
			"Make another one: CREATE DATABASE postern ENCODING 'UTF8' TEMPLATE template0", encoding)
	}
	version := status("server_version")
	number := strings.FieldsFunc(version, func(r rune) bool { return r < '0' || r > '9' })
	if len(number) > 0 {
		if major, err := strconv.Atoi(number[0]); err == nil && major < leastVersion {
			return notFit("the server is PostgreSQL %s: want %d or newer", version, leastVersion)
		}
	}
	return nil
}

func notFit(format string, args ...any) *fault.Error {
	return fault.New(fault.Conflict, unfit, format, args...)
}

// judgeSQL asks for what the session has, and for what no session can ask for in each version and as each role.
const judgeSQL = `SELECT s.name, s.given
	FROM (SELECT lower(name) AS name, setting AS given
		FROM pg_catalog.pg_settings
		WHERE lower(name) = ANY ($1::text[])
		UNION ALL
		SELECT 'server_encoding', pg_catalog.current_setting('server_encoding')
		UNION ALL
		SELECT 'server_version', pg_catalog.current_setting('server_version')
		UNION ALL
		SELECT 'backend', pg_catalog.pg_backend_pid()::text) s
	ORDER BY s.name`

// unasked are settings that a session of any role or version cannot ask for when it begins, with the value that they
// must have.
var unasked = []fixed{
	{name: "session_replication_role", value: "origin", others: []string{"local"}},
	{name: "transaction_timeout", value: "0"},
}

// Judge says why a database, or what stands before it, cannot be used: fault database_unfit. It is one statement, which
// every command asks before any other. Where PerhapsPooler is true of the error, Reach is to be asked.
func Judge(ctx context.Context, pool *pgxpool.Pool) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return Explain(err)
	}
	defer conn.Release()
	_, pooled := poolers.Load(pool.Config().ConnString())
	return judge(ctx, conn.Conn(), nil, pooled)
}

// judge is Judge without the settings that are left to role and database. A server that has another number than the
// session was told stands behind a pooler; where that is known, the settings alone count.
func judge(ctx context.Context, q *pgx.Conn, left map[string]bool, pooled bool) error {
	var names []string
	for _, f := range slices.Concat(rests, unasked) {
		names = append(names, f.name)
	}
	rows, err := q.Query(ctx, judgeSQL, names)
	if err != nil {
		return Explain(err)
	}
	has := map[string]string{}
	var name, value string
	keep := func() error { has[name] = value; return nil }
	if _, err := pgx.ForEachRow(rows, []any{&name, &value}, keep); err != nil {
		return Explain(err)
	}
	if err := told(func(name string) string { return has[name] }); err != nil {
		return err
	}
	for _, f := range unasked {
		if value, there := has[f.name]; there && !f.is(value) {
			return notFit("role or database set %s to %s: want %s: "+
				"ALTER ROLE ... RESET %s, and ALTER DATABASE ... RESET %s", f.name, value, f.value, f.name, f.name)
		}
	}
	var lost []string
	for _, f := range rests {
		if value, there := has[f.name]; there && !left[f.name] && !f.is(value) {
			lost = append(lost, fmt.Sprintf("%s is %s and not %s", f.name, value, f.value))
		}
	}
	if len(lost) > 0 {
		return notFit("sessions do not have the settings that Postern asks for: %s. "+
			"A pooler before the database does not pass them on: %s", strings.Join(lost, "; "), direct).
			Because(errPooler)
	}
	if !pooled && has["backend"] != strconv.FormatUint(uint64(q.PgConn().PID()), 10) {
		return notFit("%s", shared).Because(errPooler)
	}
	return nil
}

// Writable is fault read_only where a session can write nothing, for commands that write: on a standby, or where an
// operator has ended the writes of the database.
func Writable(ctx context.Context, conn *pgx.Conn) error {
	var standby, readOnly bool
	err := conn.QueryRow(ctx, `SELECT pg_catalog.pg_is_in_recovery(),
		pg_catalog.current_setting('transaction_read_only') = 'on'`).Scan(&standby, &readOnly)
	switch {
	case err != nil:
		return err
	case standby:
		return fault.New(fault.Conflict, "read_only",
			"the database is a standby, which can only be read: let DATABASE_URL name the primary")
	case readOnly:
		return fault.New(fault.Conflict, "read_only", "sessions may only read (default_transaction_read_only is on): "+
			"ALTER DATABASE ... SET default_transaction_read_only = off, or ALTER ROLE ..., lets them write again")
	}
	return nil
}

// direct is what to do about a pooler that does not keep a session.
const direct = "let DATABASE_URL name PostgreSQL itself, or a pooler with pool_mode = session"

// Explain makes a fault of an error of a new session where the session was refused for what it asked for; others are
// returned as they are. What a server says before a session has begun may be in another encoding than UTF8, that of its
// lc_messages: the bytes that are none are written as \xe9.
func Explain(err error) error {
	var refused *pgconn.PgError
	if err == nil || !errors.As(err, &refused) || errors.As(err, new(*fault.Error)) {
		return err
	}
	refused.Message = readable(refused.Message)
	switch {
	case refused.Code == "08P01" && strings.Contains(refused.Message, "startup parameter"):
		return notFit("a pooler before the database refuses the settings that Postern asks for (%s): %s",
			refused.Message, direct).Because(errPooler)
	case refused.Code == "26000" || refused.Code == "42P05":
		return notFit("a pooler before the database does not keep prepared statements (%s): %s",
			refused.Message, direct).Because(errPooler)
	case refused.Code == "42704" || refused.Code == "22023": // a parameter is not known, or its value
		return bad("the server refuses it: %s", refused.Message)
	}
	if text := err.Error(); !utf8.ValidString(text) {
		return &legible{readable(text), err}
	}
	return err
}

// legible is an error whose text can be read.
type legible struct {
	text string
	error
}

func (e *legible) Error() string { return e.text }
func (e *legible) Unwrap() error { return e.error }

// readable writes the bytes of a text that are not UTF-8 as \xe9.
func readable(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, `\x%02x`, s[0])
		} else {
			b.WriteRune(r)
		}
		s = s[n:]
	}
	return b.String()
}
