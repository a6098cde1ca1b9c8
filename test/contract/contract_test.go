// Package contract has another library judge api/openapi.yaml, and whether what is answered fits it.
package contract

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/postern-dev/postern/api/examples"
	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// document is the committed contract.
func document(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile("../../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestTheContractIsAnOpenAPIDocument(t *testing.T) {
	if err := document(t).Validate(t.Context()); err != nil {
		t.Error(err)
	}
}

// The examples are what a reader of the contract tries first: the requests are ones that it allows, and the answers,
// refusals included, ones that it promises.
func TestExamplesAndTheirAnswersFitTheContract(t *testing.T) {
	c, _, err := app.Load(app.Layers{Environ: map[string]string{"DATABASE_URL": pgtest.New(t).URL, "POSTERN_LISTEN": "127.0.0.1:0", "POSTERN_METRICS_LISTEN": "off"}, Defaults: app.DevDefaults})
	if err != nil {
		t.Fatal(err)
	}
	a, err := app.New(t.Context(), c, app.Role{Serve: true, Version: "test"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })

	doc := document(t)
	doc.Servers = nil // wherever it listens
	routes, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	options := &openapi3filter.Options{IncludeResponseStatus: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}
	all, err := examples.All()
	if err != nil || len(all) < 2 {
		t.Fatal(all, err)
	}
	ask := func(does, method, path string, headers map[string]string, sent []byte) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, a.URL()+path, bytes.NewReader(sent))
		if err != nil {
			t.Fatal(err)
		}
		if len(sent) > 0 {
			req.Header.Set("Content-Type", "application/json")
		}
		for k, v := range headers {
			req.Header.Set(k, v)
		}
		res, err := http.DefaultClient.Do(req.Clone(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		req.Body = io.NopCloser(bytes.NewReader(sent))
		route, params, err := routes.FindRoute(req)
		if err != nil {
			t.Errorf("%s: %s %s is not in the contract: %v", does, method, path, err)
			return
		}
		if strings.HasPrefix(does, "refuse ") && res.StatusCode < 400 {
			t.Errorf("%s: %s", does, res.Status)
		}
		asked := &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route, Options: options}
		if err := openapi3filter.ValidateRequest(t.Context(), asked); err != nil && res.StatusCode < 400 {
			t.Errorf("%s: the contract would refuse it: %v", does, err)
		}
		answer := &openapi3filter.ResponseValidationInput{RequestValidationInput: asked, Status: res.StatusCode, Header: res.Header, Options: options}
		if err := openapi3filter.ValidateResponse(t.Context(), answer.SetBodyBytes(body)); err != nil {
			t.Errorf("%s: the answer does not fit: %s %s: %v", does, res.Status, body, err)
		}
	}
	for _, list := range all {
		for _, e := range list {
			ask(e.Does, e.Method, e.Path, e.Headers, e.Body)
		}
	}
	for path, item := range doc.Paths.Map() { // what the examples made is read back in every way that needs no name
		if item.Get != nil && !strings.Contains(path, "{") && !strings.HasSuffix(path, ":stream") {
			ask("read "+path, http.MethodGet, path, nil, nil)
		}
	}
	for _, path := range []string{"/transactions/none", "/transactions?colour=red", "/queues/claim-7f3?wait=1s", "/queues/%20"} {
		ask("refuse "+path, http.MethodGet, path, nil, nil)
	}
}
