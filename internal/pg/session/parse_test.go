package session_test

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/session"
)

// An @ in a password ends it for the driver, and what is behind it counts as the host: the URL is refused with what to
// write instead, and without a word of the password.
func TestAnAtInAPasswordIsToBeEscaped(t *testing.T) {
	for _, database := range []string{"postgres://u:p4ss@w0rd@h:5432/d", "postgres://u:p4ss@@h/d",
		"postgres://u:p4ss@h,i@j/d"} {
		_, err := session.Parse(database)
		if fault.CodeOf(err) != "bad_setting" || !strings.Contains(err.Error(), "%40") ||
			strings.Contains(err.Error(), "p4ss") {
			t.Errorf("%s: %v", database, err)
		}
	}
	if c, err := session.Parse("postgres://u:p4ss%40w0rd@h:5432/d"); err != nil ||
		c.ConnConfig.Password != "p4ss@w0rd" {
		t.Error(c, err)
	}
}

// The URL of another database keeps all that this one says, also where net/url cannot read it.
func TestAnotherDatabaseOfTheSameServer(t *testing.T) {
	for database, want := range map[string]string{
		"postgres://u:p%40ss@h:5432/d?sslmode=disable":     "postgres://u:p%40ss@h:5432/other?sslmode=disable",
		"postgres://u:p#ss@h:5432/d":                       "postgres://u:p#ss@h:5432/other",
		"postgresql://u@h:1,i:2/d?dbname=e&sslmode=prefer": "postgresql://u@h:1,i:2/other?sslmode=prefer",
		"postgres:///d?host=/tmp":                          "postgres:///other?host=/tmp",
		"postgres://u@h":                                   "postgres://u@h/other",
		"host=h user=u application_name=":                  "host=h user=u application_name= '' dbname='other'",
		"host=h dbname=d user=u":                           "host=h dbname=d user=u dbname='other'",
	} {
		got, err := session.Named(database, "other")
		if err != nil || got != want {
			t.Errorf("%s is %s, want %s: %v", database, got, want, err)
		}
		if c, err := session.Parse(got); err != nil || c.ConnConfig.Database != "other" {
			t.Errorf("%s: %v", got, err)
		}
	}
}
