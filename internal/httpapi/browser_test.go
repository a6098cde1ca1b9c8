package httpapi_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/httpapi"
)

// rowsSQL counts the rows of each table of the service.
const rowsSQL = `SELECT string_agg(c.relname || ' ' || (xpath('//n/text()', query_to_xml(
		'SELECT count(*) AS n FROM postern.' || quote_ident(c.relname), false, true, '')))[1]::text,
		', ' ORDER BY c.relname)
	FROM pg_class c
	WHERE c.relnamespace = 'postern'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition`

// A page of another origin that a developer has open sends what a browser lets it send unasked: bodies of text, of
// forms or of no type, and preflights. It gets to no operation that writes, whether development mode is on or not.
func TestAPageInABrowserWritesNothing(t *testing.T) {
	for auth, want := range map[string]int{"none": 403, "required": 401} {
		t.Run(auth, func(t *testing.T) {
			d := newDoor(t, func(c *httpapi.Config) { c.Auth = auth })
			rows := func() (all string) {
				if err := d.store.Pool().QueryRow(t.Context(), rowsSQL).Scan(&all); err != nil {
					t.Fatal(err)
				}
				return all
			}
			before, tried := rows(), 0
			paths, _ := d.want(200, "GET", "/openapi.json", "").body["paths"].(map[string]any)
			for path, item := range paths {
				at := regexp.MustCompile(`\{[a-z_]+\}`).ReplaceAllString(path, "q")
				for method := range item.(map[string]any) {
					if method = strings.ToUpper(method); method == "GET" {
						continue
					}
					tried++
					if auth == "required" && strings.Contains(path, "/peers/{peer}/") {
						d.fromAPage(method, at, 0) // messages of peers are signed: there is no credential
						continue
					}
					d.fromAPage(method, at, want)
					for _, body := range []string{`{}`, ""} { // without an origin, as no browser sends it
						if auth != "none" {
							break
						}
						if a := d.call(method, at, body, "Content-Type: text/plain"); a.status != 415 {
							t.Errorf("%s %s with %q as text/plain: %d: %s", method, path, body, a.status, a.raw)
						}
					}
				}
			}
			if after := rows(); after != before || tried < 100 {
				t.Errorf("%d operations were tried, and there are\n%s\ninstead of\n%s", tried, after, before)
			}
		})
	}
}

// fromAPage calls an operation as pages of other origins may, and fails the test unless each call is refused: with
// want, unless that is 0.
func (d *door) fromAPage(method, path string, want int) {
	d.t.Helper()
	for _, origin := range []string{"Origin: https://evil.example", "Origin: null"} {
		p := d.call("OPTIONS", path, "", origin, "Access-Control-Request-Method: "+method,
			"Access-Control-Request-Headers: content-type")
		if p.status < 400 || allows(p) {
			d.t.Errorf("a preflight for %s %s: %d %v", method, path, p.status, p.header)
		}
		for _, media := range []string{
			"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "",
		} {
			for _, body := range []string{`{}`, ""} {
				a := d.call(method, path, body, origin, "Content-Type: "+media)
				if a.status < 400 || want != 0 && a.status != want || allows(a) {
					d.t.Errorf("%s %s from %s as %q: %d %v, want %d", method, path, origin, media, a.status,
						a.header, want)
				}
			}
		}
	}
}

// allows says whether an answer lets pages of other origins do or read anything.
func allows(a answer) bool {
	for name := range a.header {
		if strings.HasPrefix(name, "Access-Control-Allow-") {
			return true
		}
	}
	return false
}
