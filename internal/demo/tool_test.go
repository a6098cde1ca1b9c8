package demo

import (
	"crypto/ed25519"
	"encoding/json"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/remote"
)

// S1.10: a tool that wants signed calls does nothing else, and nothing twice.
func TestTheToolsOfTheDemoVerifyTheirCalls(t *testing.T) {
	t.Parallel()
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	tool := httptest.NewServer(ToolHandler(key.Public().(ed25519.PublicKey)))
	t.Cleanup(tool.Close)
	c := remote.New(remote.Config{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, SigningKey: key})
	t.Cleanup(c.Close)
	raw, err := c.Meta(t.Context(), tool.URL+"/add")
	if err != nil {
		t.Fatal(err)
	}
	m, err := leader.ReadMeta(raw)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := m.Definition(); err != nil || d.Sign != leader.SignEd25519 {
		t.Errorf("%s: %v", raw, err)
	}
	for _, call := range []struct {
		path, token, input string
		sign               bool
		status             int
		body               string
	}{
		{"/add", "a", `{"a": 2, "b": 3}`, false, 401, `{"details":"it has no signature of the label postern","error":"bad_signature"}`},
		{"/add", "a", `{"a": 2, "b": 3}`, true, 200, `{"ok":{"sum":5}}`},
		{"/add", "a", `{"a": 2, "b": 3}`, true, 200, `{"ok":{"sum":5}}`},
		{"/add", "a", `{"a": 2, "b": 4}`, true, 409, `{"details":"this call came before with another input","error":"key_reused"}`},
		{"/add", "b", `{"a": 2, "b": 4}`, true, 200, `{"ok":{"sum":6}}`},
		{"/flaky", "a", `{"a": 2, "b": 4}`, true, 200, `{"ok":{"sum":6}}`},
		{"/flaky", "b", `{"a": 1, "b": 1}`, true, 503, `{"details":"try again","error":"warming_up"}`},
		{"/flaky", "c", `{"a": 1, "b": 1}`, true, 200, `{"ok":{"sum":2}}`},
		{"/add", "d", `{"a": "x"}`, true, 422, `{"details":"want integers a and b","error":"input_deserialization_error"}`},
	} {
		r := c.Invoke(t.Context(), remote.Call{BaseURL: tool.URL + call.path, Sign: call.sign}, call.token, json.RawMessage(call.input), 1<<20)
		if body := string(r.Body); r.Status != call.status || body != call.body && body != call.body+"\n" {
			t.Errorf("%+v: %d %s", call, r.Status, body)
		}
	}
}
