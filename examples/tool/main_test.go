package main

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/remote"
)

// Postern's own client calls the tool. The tool answers a signed call, and an exact repeat of it as before. It refuses
// the same token with another input, and a call with any part that its key has not signed.
func TestASignedToolAnswersWhatItsKeyHasSigned(t *testing.T) {
	key := ed25519.NewKeyFromSeed([]byte(strings.Repeat("k", ed25519.SeedSize)))
	public, err := publicKey(remote.PublicKey(key))
	if err != nil {
		t.Fatal(err)
	}
	l := &tool{key: public, answered: map[string]answer{}}
	server := httptest.NewServer(l.handler())
	defer server.Close()
	l.address = server.Listener.Addr().String()
	call := func(key ed25519.PrivateKey, signed bool, token, input string) (int, string) {
		c := remote.New(remote.Config{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, SigningKey: key})
		defer c.Close()
		r := c.Invoke(t.Context(), remote.Call{BaseURL: server.URL, Timeout: 10 * time.Second, Sign: signed}, token,
			json.RawMessage(input), 1<<20)
		return r.Status, string(r.Body) + r.Code
	}
	other := ed25519.NewKeyFromSeed([]byte(strings.Repeat("o", ed25519.SeedSize)))
	for _, c := range []struct {
		what, token, input string
		key                ed25519.PrivateKey
		signed             bool
		status             int
		says               string
	}{
		{"signed", "a.1", `{"a": 1, "b": 2}`, key, true, 200, `"sum":3`},
		{"an exact repeat", "a.1", `{"a": 1, "b": 2}`, key, true, 200, `"sum":3`},
		{"the same token with another input", "a.1", `{"a": 1, "b": 3}`, key, true, 409, "key_reused"},
		{"another token", "a.2", `{"a": 1, "b": 3}`, key, true, 200, `"sum":4`},
		{"not signed", "a.3", `{"a": 1, "b": 2}`, key, false, 401, "Content-Digest"},
		{"signed by another", "a.3", `{"a": 1, "b": 2}`, other, true, 401, "does not hold"},
		{"by a client without a key", "a.3", `{"a": 1, "b": 2}`, nil, true, 0, "no_signing_key"},
	} {
		if status, says := call(c.key, c.signed, c.token, c.input); status != c.status ||
			!strings.Contains(says, c.says) {
			t.Errorf("%s: %d %s, want %d with %s", c.what, status, says, c.status, c.says)
		}
	}
}

// A signature is of one call: of its method, URL, body and token, and for a while.
func TestWhatIsSignedHoldsForOneCallForAWhile(t *testing.T) {
	key := ed25519.NewKeyFromSeed([]byte(strings.Repeat("k", ed25519.SeedSize)))
	public := key.Public().(ed25519.PublicKey)
	r, body := signedRequest(t, key)
	for what, c := range map[string]struct {
		url, token, body string
		after            time.Duration
	}{
		"":                {"", "", "", 0},
		"another URL":     {url: "http://elsewhere/invoke"},
		"another token":   {token: "b.1"},
		"another body":    {body: `{"a": 2, "b": 2}`},
		"after 6 minutes": {after: 6 * time.Minute},
		"before":          {after: -2 * time.Minute},
	} {
		one, at, in := r.Clone(t.Context()), "http://"+r.Host+"/invoke", body
		if c.url != "" {
			at = c.url
		}
		if c.token != "" {
			one.Header.Set("Idempotency-Key", c.token)
		}
		if c.body != "" {
			in = c.body
		}
		if err := verify(one, []byte(in), at, public, time.Now().Add(c.after)); (err == nil) != (what == "") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// signedRequest is a call as Postern sends it.
func signedRequest(t *testing.T, key ed25519.PrivateKey) (r *http.Request, body string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, got *http.Request) {
		raw, _ := io.ReadAll(got.Body)
		r, body = got.Clone(context.Background()), string(raw)
	}))
	defer server.Close()
	c := remote.New(remote.Config{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, SigningKey: key})
	defer c.Close()
	c.Invoke(t.Context(), remote.Call{BaseURL: server.URL, Timeout: 10 * time.Second, Sign: true}, "a.1",
		json.RawMessage(`{"a": 1, "b": 2}`), 1<<20)
	if r == nil {
		t.Fatal("nobody was called")
	}
	return r, body
}
