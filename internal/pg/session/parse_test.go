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
	for _, database := range []string{"postgres://u:p4ss@w0rd@h:5432/d", "postgres://u:p4ss@@h/d", "postgres://u:p4ss@h,i@j/d"} {
		_, err := session.Parse(database)
		if fault.CodeOf(err) != "bad_setting" || !strings.Contains(err.Error(), "%40") || strings.Contains(err.Error(), "p4ss") {
			t.Errorf("%s: %v", database, err)
		}
	}
	if c, err := session.Parse("postgres://u:p4ss%40w0rd@h:5432/d"); err != nil || c.ConnConfig.Password != "p4ss@w0rd" {
		t.Error(c, err)
	}
}
