package worker_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/postern-dev/postern/api/worker"
)

// Whatever is sent to a worker is answered with a body of the contract: an object that Postern understands, of a status
// that fits, and without a panic.
func FuzzHandler(f *testing.F) {
	for _, path := range []string{"/dispatch/T", "/dispatch/U", "/on-success/T", "/on-failure/T", "/status/T",
		"/status:batch"} {
		for _, body := range []string{`{"txData":{"uid":"u","data":{"n":1}},"postern":{"token":"t.1.1",` +
			`"attempt":1,"fence":5,"line":"l"}}`, `{"token":"t"}`, `{"hash":"h"}`, `{"hashes":["h","i"]}`,
			`{}`, `[]`, `null`, ``, `{"txData":{"data":[1]},"postern":{"token":"","fence":1e99}}`,
			`{"postern":{"token":"a.b.c","deadline":"x"}}`} {
			f.Add(path, body)
		}
	}
	f.Fuzz(func(t *testing.T, path, body string) {
		if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, " ?#%\x00\r\n\t") {
			return
		}
		w := worker.New(worker.Options{})
		worker.Handle(w, "T", func(_ context.Context, c worker.Call[struct{ N int }]) (worker.Answer, error) {
			return worker.Done(c.Data.N), nil
		})
		r := httptest.NewRequest("POST", "http://w/", strings.NewReader(body))
		r.URL.Path = path
		out := httptest.NewRecorder()
		w.Handler().ServeHTTP(out, r)
		if !strings.Contains(out.Header().Get("Content-Type"), "json") { // the mux itself, where there is no such path
			if out.Code < 300 || out.Code >= 500 {
				t.Errorf("%s %q: %d %s", path, body, out.Code, out.Body)
			}
			return
		}
		var v map[string]json.RawMessage
		if err := json.Unmarshal(out.Body.Bytes(), &v); err != nil {
			t.Errorf("%s %q: %d %s: %v", path, body, out.Code, out.Body, err)
		}
		// it has no Options.Status
		if out.Code >= http.StatusInternalServerError && out.Code != http.StatusNotImplemented {
			t.Errorf("%s %q: %d %s", path, body, out.Code, out.Body)
		}
	})
}
