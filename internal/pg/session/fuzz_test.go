package session_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/session"
)

// A DATABASE_URL is refused by a sentence that says what to do and not the password, or has the settings on which our
// SQL rests, also for another database of its server.
func FuzzParse(f *testing.F) {
	const secret = "c4n4ry-0f-4-p4ssw0rd"
	for _, s := range []string{"h:5432/d", "h/d?sslmode=disable", "h,i/d?target_session_attrs=any",
		"h/d?search_path=public", "h/d?options=-c%20geqo%3Doff",
		"h/d?options=-c%20timezone%3DEurope/Rome", "h/d?pool_max_conns=7", "h/d?pool_max_conns=x",
		"h/d?hostaddr=1.2.3.4", "h/d?DateStyle=ISO",
		"h/d?options=%5C", "[::1]:5432/d", "h:port/d", "h/%zz",
		"h/d?ssl_min_protocol_version=TLSv1.2&sslmode=require", "/d?host=/tmp", "h/d?synchronous_commit=off",
		"h/d?default_query_exec_mode=exec", "h/d?statement_cache_capacity=1", "h/d?connect_timeout=-1", "@h/d",
		"h/d?password=x", "h/d?application_name=%00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, rest string) {
		for _, database := range []string{"postgres://u:" + secret + "@" + rest, "host=h user=u password=" +
			secret + " " + rest} {
			if strings.Contains(rest, "sslrootcert") || strings.Contains(rest, "sslcert") ||
				strings.Contains(rest, "file") {
				return // these read files
			}
			c, err := session.Parse(database)
			if err != nil {
				f := fault.As(err)
				if f == nil || f.Kind != fault.Invalid || f.Code != "bad_setting" || f.Detail == "" {
					t.Errorf("%q: %#v", database, err)
				}
				for e := err; e != nil; e = errors.Unwrap(e) {
					if strings.Contains(e.Error(), secret) {
						t.Errorf("%q: the password is in %v", database, e)
					}
				}
				continue
			}
			for name, want := range map[string]string{"timezone": "UTC", "client_encoding": "UTF8",
				"standard_conforming_strings": "on", "search_path": "pg_catalog, pg_temp"} {
				if got := c.ConnConfig.RuntimeParams[name]; got != want {
					t.Errorf("%q: %s=%q", database, name, got)
				}
			}
			for name := range c.ConnConfig.RuntimeParams {
				if name == "options" || name != strings.ToLower(name) || strings.HasPrefix(name, "pool_") {
					t.Errorf("%q: the server is asked for %q", database, name)
				}
			}
			other, err := session.Named(database, "other")
			if err != nil {
				t.Fatalf("%q: %v", database, err)
			}
			o, err := session.Parse(other)
			if err != nil || o.ConnConfig.Database != "other" || o.ConnConfig.Host != c.ConnConfig.Host ||
				o.ConnConfig.User != c.ConnConfig.User || o.ConnConfig.Password != c.ConnConfig.Password {
				t.Errorf("%q for another database is %q: %v", database, other, err)
			}
		}
	})
}
