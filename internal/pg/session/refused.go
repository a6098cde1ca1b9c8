package session

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// Refused says of an error of a new session what the server that was reached refuses, and what is to be done. Where no
// server has answered, why is "does not answer".
func Refused(err error) (why, next string) {
	var e *pgconn.PgError
	if said := Exhausted(err); said != "" {
		return "refuses: " + said, "then ask again"
	}
	if !errors.As(err, &e) {
		return "does not answer", "start it, or say with DATABASE_URL where it is"
	}
	switch e.Code {
	case "28P01":
		return "refuses the password", "correct user and password in DATABASE_URL"
	case "28000":
		return "refuses the user",
			"correct the user in DATABASE_URL, make it (createuser), or let pg_hba.conf of the server admit it"
	case "3D000":
		name := "NAME"
		var c *pgconn.ConnectError
		if errors.As(err, &c) && c.Config != nil {
			name = c.Config.Database
		}
		return "does not exist", "createdb " + name + " makes it, or correct its name in DATABASE_URL"
	case "42501":
		return "refuses the user", "GRANT CONNECT ON DATABASE ... TO the user in DATABASE_URL"
	case "57P03":
		return "does not answer yet", "wait until it has started, and run it again"
	}
	return "does not answer", "start it, or say with DATABASE_URL where it is"
}
