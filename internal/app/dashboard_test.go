package app_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/pgtest"
)

// The dashboard is beside the API, unless it is off; GET / leads there in development alone. Its streams end when the
// process stops, long before they would end by themselves.
func TestTheDashboardIsBesideTheAPI(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		role       app.Role
		ui         string
		home, page int
	}{
		"development": {app.Role{Serve: true, Home: true}, "on", 200, 200},
		"service":     {app.Role{Serve: true}, "on", 404, 200},
		"off":         {app.Role{Serve: true, Home: true}, "off", 404, 404},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, stop, ended := running(t, pgtest.New(t).URL, c.role, map[string]string{"POSTERN_UI": c.ui})
			if status, _ := send(t, http.MethodGet, a.URL()+"/", ""); status != c.home {
				t.Errorf("GET / answers %d, want %d", status, c.home)
			}
			if status, text := send(t, http.MethodGet, a.URL()+"/ui/", ""); status != c.page ||
				status == 200 && !strings.Contains(text, "Is anything stuck") {
				t.Errorf("GET /ui/ answers %d, want %d: %s", status, c.page, text)
			}
			if c.ui == "off" {
				return
			}
			res, err := http.Get(a.URL() + "/ui/c/default/now?live=1")
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			begun := time.Now()
			stop()
			if _, err := io.Copy(io.Discard, res.Body); err != nil {
				t.Errorf("the stream breaks off: %v", err)
			}
			if err := <-ended; err != nil || time.Since(begun) > time.Minute {
				t.Errorf("the process ended after %s: %v", time.Since(begun), err)
			}
		})
	}
}
