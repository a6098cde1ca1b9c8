package app

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/remote"
)

// SigningKey signs what leaves the installation besides the secrets of its receivers: an ed25519 key as
// `openssl genpkey -algorithm ed25519` writes it (PEM), or as Standard Webhooks does (whsk_ and base64).
type SigningKey ed25519.PrivateKey

// UnmarshalText reads a key; the text itself is in no error.
func (k *SigningKey) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*k = nil
		return nil
	}
	if raw, ok := strings.CutPrefix(strings.TrimSpace(string(text)), "whsk_"); ok {
		b, err := base64.StdEncoding.DecodeString(raw)
		switch {
		case err == nil && len(b) == ed25519.PrivateKeySize &&
			string(ed25519.NewKeyFromSeed(b[:ed25519.SeedSize])) == string(b):
			*k = SigningKey(b)
			return nil
		case err == nil && len(b) == ed25519.SeedSize:
			*k = SigningKey(ed25519.NewKeyFromSeed(b))
			return nil
		}
		return fmt.Errorf("want whsk_ and the base64 of an ed25519 key")
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return fmt.Errorf("want an ed25519 key in PEM, as `openssl genpkey -algorithm ed25519` writes it, or whsk_ and its base64")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	private, ok := key.(ed25519.PrivateKey)
	if err != nil || !ok {
		return fmt.Errorf("the PEM block %q holds no ed25519 key in PKCS #8", block.Type)
	}
	*k = SigningKey(private)
	return nil
}

// devKey is the key of an installation for development, made if it is missing: kept in dir, or with "" for as long
// as the process lives. It returns what to say about it.
func devKey(dir string) (k SigningKey, said string, err error) {
	file := filepath.Join(dir, "signing.key")
	if dir != "" {
		if text, err := os.ReadFile(file); err == nil {
			if err := k.UnmarshalText(text); err != nil {
				return nil, "", fault.New(fault.Invalid, "bad_setting",
					"%s: %v; delete it, and another one is made", file, err)
			}
			return k, "callbacks are signed by the key in " + file, nil
		}
	}
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, "", err
	}
	k = SigningKey(private)
	if dir == "" {
		return k, "callbacks are signed by a key that ends with this process: " + k.Public(), nil
	}
	err = os.WriteFile(file, []byte("whsk_"+base64.StdEncoding.EncodeToString(private)+"\n"), 0o600)
	return k, "callbacks are signed by the new key in " + file + ": " + k.Public(), err
}

// Public is the other half as receivers are given it, "" without a key.
func (k SigningKey) Public() string {
	return remote.PublicKey(ed25519.PrivateKey(k))
}
