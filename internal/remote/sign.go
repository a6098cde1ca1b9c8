package remote

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/remote/signature"
)

// covered is what is signed of a call.
var covered = []string{"@method", "@target-uri", "content-digest", "idempotency-key"}

// sign signs a call. The signature covers the method (@method), the URL (@target-uri), the body (Content-Digest), and
// the call (Idempotency-Key, which header must hold). The keyid is the public key as PublicKey writes it.
func sign(header http.Header, method, target string, body []byte, key ed25519.PrivateKey, at time.Time) error {
	s := signature.Signer{Label: signedAs, Key: key, KeyID: PublicKey(key)}
	return s.SignThese(header, method, target, body, at, covered...)
}

// signedAs is the label of our signatures.
const signedAs = "postern"

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
	list, err := signature.Parse(r.Header)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(s *signature.Signature) bool { return s.Label == signedAs })
	if i < 0 {
		return errors.New("it has no signature of the label " + signedAs)
	}
	if missing := list[i].Covers(covered...); missing != "" {
		return errors.New("the signature does not cover " + missing)
	}
	if err := signature.CheckDigest(r.Header, body); err != nil {
		return err
	}
	if err := list[i].Fresh(now); err != nil {
		return err
	}
	return list[i].Verify(signature.Of(r, target, body), key)
}
