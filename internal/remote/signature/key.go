package signature

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"filippo.io/edwards25519"

	"github.com/postern-dev/postern/internal/fault"
)

// ID is a public key as URLs and signatures name it: the base64 of URLs, without padding.
func ID(key ed25519.PublicKey) string { return base64.RawURLEncoding.EncodeToString(key) }

// ParseKey reads a public key of 32 bytes in any base64; whpk_ before it is passed over.
func ParseKey(text string) (ed25519.PublicKey, error) {
	plain := strings.TrimRight(strings.TrimPrefix(text, "whpk_"), "=")
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		raw, err := encoding.Strict().DecodeString(plain)
		if err == nil && len(raw) == ed25519.PublicKeySize && !strings.ContainsAny(plain, "\r\n") {
			return raw, nil
		}
	}
	return nil, fmt.Errorf("%q is no Ed25519 key: want base64 of 32 bytes", fault.Clip(text))
}

// CheckKey says why a public key must not name anybody, nil if it may. Under a key of small order somebody without any
// secret makes signatures that crypto/ed25519 takes.
func CheckKey(key ed25519.PublicKey) error {
	p, err := new(edwards25519.Point).SetBytes(key)
	if err != nil {
		return errors.New("it is no point of the curve of Ed25519")
	}
	if new(edwards25519.Point).MultByCofactor(p).Equal(edwards25519.NewIdentityPoint()) == 1 {
		return errors.New("it is a point of small order: anybody can sign under it")
	}
	return nil
}

// proof is what a new key of an actor signs, so that a key of another one is not added.
func proof(installation, actor string) []byte {
	return []byte("postern add key\n" + installation + "\n" + actor)
}

// Prove makes the proof that the holder of a key wants it to be one of an actor, at one installation.
func Prove(key ed25519.PrivateKey, installation, actor string) string {
	return base64.StdEncoding.EncodeToString(ed25519.Sign(key, proof(installation, actor)))
}

// Proves says whether a text is what Prove makes.
func Proves(key ed25519.PublicKey, installation, actor, text string) bool {
	sig, err := base64.StdEncoding.DecodeString(text)
	return err == nil && ed25519.Verify(key, proof(installation, actor), sig)
}
