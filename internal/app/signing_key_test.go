package app_test

import (
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/app"
)

func TestASigningKeyIsReadFromItsFileAndNeverShown(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	other, err := rsa.GenerateKey(nil, 2048)
	if err != nil {
		t.Fatal(err)
	}
	rsaDER, err := x509.MarshalPKCS8PrivateKey(other)
	if err != nil {
		t.Fatal(err)
	}
	want := "whpk_" + base64.StdEncoding.EncodeToString(public)
	for name, c := range map[string]struct{ text, said string }{
		"PEM":         {string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), ""},
		"whsk":        {"whsk_" + base64.StdEncoding.EncodeToString(private) + "\n", ""},
		"seed":        {"whsk_" + base64.StdEncoding.EncodeToString(private.Seed()), ""},
		"RSA":         {string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: rsaDER})), "no ed25519 key"},
		"another way": {"hunter2", "openssl genpkey"},
		"half a key":  {"whsk_aHVudGVyMg==", "base64 of an ed25519 key"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "key")
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg, settings, err := app.Load(app.Layers{Environ: map[string]string{"POSTERN_SIGNING_KEY_FILE": file}})
			if c.said == "" && (err != nil || cfg.SigningKey.Public() != want) ||
				c.said != "" && (err == nil || !strings.Contains(err.Error(), c.said)) {
				t.Errorf("%q %v, want %q or %q", cfg.SigningKey.Public(), err, want, c.said)
			}
			if err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "aHVudGVyMg")) {
				t.Errorf("a secret is in the error: %v", err)
			}
			for _, s := range settings {
				if s.Env == "POSTERN_SIGNING_KEY" && strings.Contains(s.Value, "PRIVATE") {
					t.Errorf("%+v", s)
				}
			}
		})
	}
}
