package session

import (
	"errors"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// hinted finds the setting that the hint of a server names. The words around it are in the server's language.
var hinted = regexp.MustCompile(`\b(max|shared|work)_[a-z_]+[a-z]\b`)

// Exhausted says of an error of the server what it has run out of, and what is to be done; "" where err is no such
// error. A server that says so can be reached: what helps is its settings, or its machine.
func Exhausted(err error) string {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return ""
	}
	next := ""
	switch class := e.Code[:min(2, len(e.Code))]; {
	case e.Code == "53100":
		next = "make room on its disk, or enlarge it"
	case e.Code == "53300":
		next = "raise max_connections and restart it (a limit of the role or the database: ALTER ROLE or ALTER DATABASE " +
			"... CONNECTION LIMIT), start fewer processes, or give them less pool_max_conns in DATABASE_URL"
	case class == "53", class == "54":
		next = "give its machine more, or raise the limit that it names"
		if e.Code == "53200" {
			next = "give its machine more memory, or lower its work_mem and shared_buffers"
		}
		if name := hinted.FindString(e.Hint); name != "" {
			next = "ALTER SYSTEM SET " + name + " to twice what it is, and restart it"
		}
	default:
		return ""
	}
	return "the database has reached a limit (SQLSTATE " + e.Code + "): " + strings.TrimSuffix(e.Message,
		".") + ": " + next
}
