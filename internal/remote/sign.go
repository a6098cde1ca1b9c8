package remote

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/fault"
)

// signedFor is how long a signature holds: as long as the clocks of both ends may differ, and an answer be waited for.
const signedFor = 5 * time.Minute

// covered is what is signed of a request.
const covered = `("@method" "@target-uri" "content-digest" "idempotency-key")`

// sign signs a request as RFC 9421 has it, with ed25519. The signature covers the method (@method), the URL
// (@target-uri), the body (the Content-Digest of RFC 9530), and the call (Idempotency-Key, which header must hold).
// sign adds Content-Digest, Signature-Input and Signature. The keyid is the public key as PublicKey writes it.
func sign(header http.Header, method, target string, body []byte, key ed25519.PrivateKey, at time.Time) error {
	u, err := url.Parse(target)
	if err != nil {
		return err
	}
	u.User = nil // it goes as a header, and is no part of what the other end sees
	digest := sha256.Sum256(body)
	header.Set("Content-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(digest[:])+":")
	params := fmt.Sprintf(`%s;created=%d;expires=%d;nonce="%s";alg="ed25519";keyid="%s"`, covered,
		at.Unix(), at.Add(signedFor).Unix(), rand.Text(), PublicKey(key))
	base := signatureBase(params, [2]string{"@method", method}, [2]string{"@target-uri", u.String()},
		[2]string{"content-digest", header.Get("Content-Digest")}, [2]string{"idempotency-key", header.Get("Idempotency-Key")})
	header.Set("Signature-Input", "postern="+params)
	header.Set("Signature", "postern=:"+base64.StdEncoding.EncodeToString(ed25519.Sign(key, base))+":")
	return nil
}

// signatureBase is what is signed: each component on a line, and what stands in Signature-Input (RFC 9421, section
// 2.5).
func signatureBase(params string, components ...[2]string) []byte {
	var b strings.Builder
	for _, c := range components {
		fmt.Fprintf(&b, "%q: %s\n", c[0], c[1])
	}
	b.WriteString(`"@signature-params": ` + params)
	return []byte(b.String())
}

// PublicKey is the other half of a key as receivers are given it, "" without one.
func PublicKey(k ed25519.PrivateKey) string {
	if len(k) == 0 {
		return ""
	}
	return "whpk_" + base64.StdEncoding.EncodeToString(k.Public().(ed25519.PublicKey))
}

// ParsePublicKey reads a key as PublicKey writes it.
func ParsePublicKey(text string) (ed25519.PublicKey, error) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, "whpk_"))
	if err != nil || len(raw) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("public key %q: want whpk_ and the base64 of an ed25519 key", fault.Clip(text))
	}
	return raw, nil
}

// Verify is the other end of sign. It says what is wrong with the signature of a request that was received with this
// body. nil: key has signed the request for the URL target, and the signature holds now.
func Verify(r *http.Request, body []byte, target string, key ed25519.PublicKey, now time.Time) error {
	digest := sha256.Sum256(body)
	if r.Header.Get("Content-Digest") != "sha-256=:"+base64.StdEncoding.EncodeToString(digest[:])+":" {
		return errors.New("Content-Digest is not that of the body")
	}
	params, ok := strings.CutPrefix(r.Header.Get("Signature-Input"), "postern=")
	if !ok || !strings.HasPrefix(params, covered+";") {
		return errors.New("Signature-Input does not cover " + covered)
	}
	var created, expires int64
	if _, err := fmt.Sscanf(params[len(covered):], ";created=%d;expires=%d;", &created, &expires); err != nil ||
		now.Before(time.Unix(created, 0).Add(-time.Minute)) || now.After(time.Unix(expires, 0)) || expires-created > int64(signedFor/time.Second) {
		return errors.New("the signature is not of now")
	}
	sig, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(strings.TrimPrefix(r.Header.Get("Signature"), "postern=:"), ":"))
	if err != nil {
		return errors.New("Signature: want postern=:base64:")
	}
	base := signatureBase(params, [2]string{"@method", r.Method}, [2]string{"@target-uri", target},
		[2]string{"content-digest", r.Header.Get("Content-Digest")}, [2]string{"idempotency-key", r.Header.Get("Idempotency-Key")})
	if !ed25519.Verify(key, base, sig) {
		return errors.New("the signature does not hold")
	}
	return nil
}
