package remotetest

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
)

// Signed says what is wrong with the signature of a call (S1.10), nil if key has signed this body for this URL under
// this Idempotency-Key.
func Signed(r *http.Request, body []byte, target string, key ed25519.PublicKey) error {
	digest := sha256.Sum256(body)
	if r.Header.Get("Content-Digest") != "sha-256=:"+base64.StdEncoding.EncodeToString(digest[:])+":" {
		return errors.New("the body is not that of Content-Digest")
	}
	params, ok := strings.CutPrefix(r.Header.Get("Signature-Input"), "postern=")
	if !ok || !strings.HasPrefix(params, `("@method" "@target-uri" "content-digest" "idempotency-key");`) {
		return errors.New("Signature-Input does not cover method, URL, body and token")
	}
	sig, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(strings.TrimPrefix(r.Header.Get("Signature"), "postern=:"), ":"))
	if err != nil {
		return err
	}
	base := "\"@method\": " + r.Method + "\n\"@target-uri\": " + target + "\n\"content-digest\": " + r.Header.Get("Content-Digest") +
		"\n\"idempotency-key\": " + r.Header.Get("Idempotency-Key") + "\n\"@signature-params\": " + params
	if !ed25519.Verify(key, []byte(base), sig) {
		return errors.New("the signature does not hold")
	}
	return nil
}
