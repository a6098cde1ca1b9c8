package remote

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// signedFor is how long a signature holds: as long as the clocks of both ends may differ, and an answer be waited for.
const signedFor = 5 * time.Minute

// sign signs a request as RFC 9421 has it, with ed25519: what is done (@method), where (@target-uri), with which body
// (the Content-Digest of RFC 9530), and as which call (Idempotency-Key, which header must hold). It adds Content-Digest,
// Signature-Input and Signature. The keyid is the public key as PublicKey writes it.
func sign(header http.Header, method, target string, body []byte, key ed25519.PrivateKey, at time.Time) error {
	u, err := url.Parse(target)
	if err != nil {
		return err
	}
	u.User = nil // it goes as a header, and is no part of what the other end sees
	digest := sha256.Sum256(body)
	header.Set("Content-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(digest[:])+":")
	params := fmt.Sprintf(`("@method" "@target-uri" "content-digest" "idempotency-key");created=%d;expires=%d;nonce="%s";alg="ed25519";keyid="%s"`,
		at.Unix(), at.Add(signedFor).Unix(), rand.Text(), PublicKey(key))
	base := signatureBase(params, [2]string{"@method", method}, [2]string{"@target-uri", u.String()},
		[2]string{"content-digest", header.Get("Content-Digest")}, [2]string{"idempotency-key", header.Get("Idempotency-Key")})
	header.Set("Signature-Input", "postern="+params)
	header.Set("Signature", "postern=:"+base64.StdEncoding.EncodeToString(ed25519.Sign(key, base))+":")
	return nil
}

// signatureBase is what is signed: each component on a line, and what stands in Signature-Input (RFC 9421, section 2.5).
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
