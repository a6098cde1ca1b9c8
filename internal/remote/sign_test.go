package remote

import (
	"cmp"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The example of RFC 9421, appendix B.2.6.
func TestWhatIsSignedIsThatOfTheStandard(t *testing.T) {
	der, err := base64.StdEncoding.DecodeString("MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF")
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		t.Fatal(err)
	}
	base := signatureBase(`("date" "@method" "@path" "@authority" "content-type" "content-length");created=1618884473;keyid="test-key-ed25519"`,
		[2]string{"date", "Tue, 20 Apr 2021 02:07:55 GMT"}, [2]string{"@method", "POST"}, [2]string{"@path", "/foo"}, [2]string{"@authority", "example.com"},
		[2]string{"content-type", "application/json"}, [2]string{"content-length", "18"})
	got := base64.StdEncoding.EncodeToString(ed25519.Sign(key.(ed25519.PrivateKey), base))
	if want := "wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw=="; got != want {
		t.Errorf("is   %s\nwant %s", got, want)
	}
}

func TestASignatureSaysWhatWhereAndUntilWhen(t *testing.T) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	h := http.Header{"Idempotency-Key": {"a.1"}}
	if err := sign(h, "POST", "https://ann:secret@tool.example/add/invoke", []byte(`{"hello": "world"}`), key, time.Unix(1618884473, 0)); err != nil {
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
	base := "\"@method\": POST\n\"@target-uri\": https://tool.example/add/invoke\n\"content-digest\": " + h.Get("Content-Digest") + "\n\"idempotency-key\": a.1\n\"@signature-params\": " + params
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
		"as it was sent":      {},
		"until it expires":    {later: signedFor},
		"by a clock behind":   {later: -time.Minute},
		"too late":            {later: signedFor + time.Second, want: "the signature is not of now"},
		"too early":           {later: -61 * time.Second, want: "the signature is not of now"},
		"another body":        {body: "{}", want: "Content-Digest is not that of the body"},
		"another URL":         {target: "https://tool.example/sub/invoke", want: "the signature does not hold"},
		"another key":         {key: 1, want: "the signature does not hold"},
		"another method":      {change: func(r *http.Request) { r.Method = "PUT" }, want: "the signature does not hold"},
		"another token":       {change: func(r *http.Request) { r.Header.Set("Idempotency-Key", "a.2") }, want: "the signature does not hold"},
		"another nonce":       {change: func(r *http.Request) { r.Header.Set("Signature-Input", r.Header.Get("Signature-Input")+"x") }, want: "the signature does not hold"},
		"fewer components":    {change: func(r *http.Request) { r.Header.Set("Signature-Input", `postern=("@method");created=1;expires=2;`) }, want: "Signature-Input does not cover " + covered},
		"none":                {change: func(r *http.Request) { r.Header.Del("Signature") }, want: "the signature does not hold"},
		"one that is no text": {change: func(r *http.Request) { r.Header.Set("Signature", "postern=:?:") }, want: "Signature: want postern=:base64:"},
	} {
		r := &http.Request{Method: "POST", Header: http.Header{"Idempotency-Key": {"a.1"}}}
		if err := sign(r.Header, r.Method, at, []byte(body), key, now); err != nil {
			t.Fatal(err)
		}
		if c.change != nil {
			c.change(r)
		}
		public, err := ParsePublicKey(PublicKey(ed25519.NewKeyFromSeed(append(make([]byte, ed25519.SeedSize-1), byte(c.key)))))
		if err != nil {
			t.Fatal(err)
		}
		err = Verify(r, []byte(cmp.Or(c.body, body)), cmp.Or(c.target, at), public, now.Add(c.later))
		if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for _, text := range []string{"", "whpk_", "whpk_AAAA", "whpk_?"} {
		if _, err := ParsePublicKey(text); err == nil {
			t.Errorf("%q is a key", text)
		}
	}
}
