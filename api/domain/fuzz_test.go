package domain_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/postern-dev/postern/api/domain"
)

// Whatever a service of a domain is sent is answered with an object of the contract, or with a refusal behind which
// Postern asks again. An intent that cannot be read ends, since no later call would mend it.
func FuzzHandler(f *testing.F) {
	kinds := []string{"assemble", "sign", "endorse", "prepare", "look", "settled"}
	for _, body := range []string{`{"key":"k","domain":"d","intent":{"id":"i","party":"p@a","data":{"cents":7}},` +
		`"height":1}`,
		`{"intent":{"data":{"cents":101}}}`, `{"intent":{"data":{"cents":-1}}}`, `{"intent":{"data":"x"}}`, `{}`,
		`null`, `[]`, ``,
		`{"intents":["a","b"]}`, `{"intents":7}`, `{"key":7}`,
		`{"hash":"h","signatures":[{"data":null}],"outputs":[null]}`,
		`{"pending":{"outputs":[{"data":{"a":1}}]}}`, `{} {}`} {
		for kind := range byte(len(kinds)) {
			f.Add(kind, body)
		}
	}
	type data struct{ Cents int }
	service := domain.Service[data]{
		Assemble: func(_ context.Context, a domain.Assembly[data]) (domain.Assembled, error) {
			switch {
			case a.Data.Cents > 100:
				return domain.Assembled{}, domain.Revert("too much")
			case a.Data.Cents < 0:
				return domain.Assembled{}, domain.Park("later", 0)
			}
			return domain.Assembled{Assembled: a.Data}, nil
		},
		Sign:    func(_ context.Context, t domain.Ticket) (any, error) { return t.Hash, nil },
		Endorse: func(_ context.Context, t domain.Ticket) (any, error) { return nil, domain.Revert(t.Party) },
		Prepare: func(_ context.Context, p domain.Preparation) (domain.Public, error) {
			return domain.Public{Type: "T", Data: p.Assembled}, nil
		},
		Look:    func(_ context.Context, intent string) (bool, error) { return intent != "", nil },
		Settled: func(context.Context, domain.Settlement) error { return errors.New("no") },
	}
	handler := service.Handler()
	f.Fuzz(func(t *testing.T, kind byte, body string) {
		name := kinds[int(kind)%len(kinds)]
		out := httptest.NewRecorder()
		handler.ServeHTTP(out, httptest.NewRequest(http.MethodPost, "/"+name, strings.NewReader(body)))
		var said map[string]json.RawMessage
		err := json.Unmarshal(out.Body.Bytes(), &said)
		switch {
		case out.Code == http.StatusOK && (err != nil || said == nil):
			t.Errorf("%s %q: %s", name, body, out.Body)
		case out.Code == http.StatusOK && name == "assemble" && said["result"] == nil:
			t.Errorf("%s %q: %s", name, body, out.Body)
		case name == "assemble" && out.Code != http.StatusOK, name == "settled" && out.Code == http.StatusOK,
			out.Code != http.StatusOK && out.Code != http.StatusBadRequest && name != "settled":
			t.Errorf("%s %q: %d %s", name, body, out.Code, out.Body)
		}
		if !json.Valid([]byte(body)) && name == "assemble" && string(said["result"]) != `"REVERT"` {
			t.Errorf("%q was assembled: %s", body, out.Body)
		}
	})
}
