package remote

import (
	"cmp"
	"crypto/ed25519"
	"encoding/base64"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/remote/signature"
)

func TestASignatureSaysWhatWhereAndUntilWhen(t *testing.T) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	h := http.Header{"Idempotency-Key": {"a.1"}}
	if err := sign(h, "POST", "https://ann:secret@tool.example/add/invoke", []byte(`{"hello": "world"}`), key,
		time.Unix(1618884473, 0)); err != nil {
		t.Fatal(err)
	}
	// the digest is that of RFC 9530, appendix D
	if got := h.Get("Content-Digest"); got != "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:" {
		t.Error(got)
	}
	params := strings.TrimPrefix(h.Get("Signature-Input"), "postern=")
	if !regexp.MustCompile(`^\("@method" "@target-uri" "content-digest" "idempotency-key"\);created=1618884473;expires=1618884773;nonce="[A-Z2-7]{26}";alg="ed25519";keyid="whpk_[A-Za-z0-9+/]{43}="$`).MatchString(params) {
		t.Error(params)
	}
	sig, err := base64.StdEncoding.DecodeString(strings.Trim(strings.TrimPrefix(h.Get("Signature"), "postern="), ":"))
	if err != nil {
		t.Fatal(err)
	}
	base := "\"@method\": POST\n\"@target-uri\": https://tool.example/add/invoke\n\"content-digest\": " +
		h.Get("Content-Digest") + "\n\"idempotency-key\": a.1\n\"@signature-params\": " + params
	if !ed25519.Verify(key.Public().(ed25519.PublicKey), []byte(base), sig) {
		t.Errorf("%s does not hold for\n%s", h.Get("Signature"), base)
	}
}

// A signature verifies its own request for a while. It verifies no other request, and none at another time.
func TestASignatureHoldsForOneRequestAndForAWhile(t *testing.T) {
	const at, body = "https://tool.example/add/invoke", `{"hello": "world"}`
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	now := time.Unix(1618884473, 0)
	for name, c := range map[string]struct {
		change func(*http.Request)
		body   string
		target string
		key    int
		later  time.Duration
		want   string
	}{
		"as it was sent":    {},
		"until it expires":  {later: signature.Life - time.Second},
		"by a clock behind": {later: -time.Minute},
		"too late":          {later: signature.Life, want: "it has expired"},
		"too early":         {later: -61 * time.Second, want: "it was created 1m1s ahead"},
		"another body":      {body: "{}", want: "sha-256 is not that of the body"},
		"another URL":       {target: "https://tool.example/sub/invoke", want: "it does not hold"},
		"another key":       {key: 1, want: "it does not hold"},
		"another method":    {change: func(r *http.Request) { r.Method = "PUT" }, want: "it does not hold"},
		"another token": {change: func(r *http.Request) { r.Header.Set("Idempotency-Key", "a.2") },
			want: "it does not hold"},
		"another nonce": {change: func(r *http.Request) {
			r.Header.Set("Signature-Input",
				r.Header.Get("Signature-Input")+";x")
		}, want: "it does not hold"},
		"fewer components": {change: func(r *http.Request) {
			r.Header.Set("Signature-Input",
				`postern=("@method");created=1;expires=2`)
		}, want: "does not cover @target-uri"},
		"none": {change: func(r *http.Request) { r.Header.Del("Signature") },
			want: "Signature has no postern="},
		"one that is no text": {change: func(r *http.Request) { r.Header.Set("Signature", "postern=:?:") },
			want: "RFC 8941"},
	} {
		r := &http.Request{Method: "POST", Header: http.Header{"Idempotency-Key": {"a.1"}}}
		if err := sign(r.Header, r.Method, at, []byte(body), key, now); err != nil {
			t.Fatal(err)
		}
		if c.change != nil {
			c.change(r)
		}
		public, err := ParsePublicKey(PublicKey(ed25519.NewKeyFromSeed(append(make([]byte,
			ed25519.SeedSize-1), byte(c.key)))))
		if err != nil {
			t.Fatal(err)
		}
		err = Verify(r, []byte(cmp.Or(c.body, body)), cmp.Or(c.target, at), public, now.Add(c.later))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for _, text := range []string{"", "whpk_", "whpk_AAAA", "whpk_?"} {
		if _, err := ParsePublicKey(text); err == nil {
			t.Errorf("%q is a key", text)
		}
	}
}
