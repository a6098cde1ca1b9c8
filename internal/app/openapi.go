package app

import (
	"bytes"
	"fmt"
	"net/http"

	"github.com/postern-dev/postern/internal/httpapi"
)

// OpenAPI is the document of the API as YAML, the one that GET /openapi.yaml answers.
func OpenAPI() ([]byte, error) {
	req, err := http.NewRequest(http.MethodGet, "http://127.0.0.1/openapi.yaml", nil)
	if err != nil {
		return nil, err
	}
	w := &answer{header: http.Header{}, status: http.StatusOK}
	httpapi.New(httpapi.Config{Auth: "none"}).Handler().ServeHTTP(w, req)
	if w.status != http.StatusOK {
		return nil, fmt.Errorf("GET /openapi.yaml answered %d: %s", w.status, w.body.Bytes())
	}
	return w.body.Bytes(), nil
}

// answer keeps what a handler writes.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }
