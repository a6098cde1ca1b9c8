package signature

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Says are the headers that say what a request does: a signature covers those that are sent.
var Says = []string{"idempotency-key", "if-match", "if-none-match", "postern-context", "postern-fence"}

// Signer signs requests with a key.
type Signer struct {
	Label string // postern unless said
	Key   ed25519.PrivateKey
	KeyID string // ID of the key unless said
}

// Sign signs a request: it adds Content-Digest, Signature-Input and Signature to its header. The signature covers the
// method, the URL, the digest of the body if there is one, and those of Says that the header holds.
func (s Signer) Sign(header http.Header, method, target string, body []byte, at time.Time) error {
	covered := []string{"@method", "@target-uri"}
	if len(body) > 0 {
		covered = append(covered, "content-digest")
	}
	for _, name := range Says {
		if len(header.Values(name)) > 0 {
			covered = append(covered, name)
		}
	}
	return s.SignThese(header, method, target, body, at, covered...)
}

// SignThese is Sign for components that the caller names.
func (s Signer) SignThese(
	header http.Header, method, target string, body []byte, at time.Time, covered ...string,
) error {
	u, err := url.Parse(target)
	if err != nil {
		return err
	}
	u.User = nil // it goes as a header, and is no part of what the other end sees
	label, id := s.Label, s.KeyID
	if label == "" {
		label = "postern"
	}
	if id == "" {
		id = ID(s.Key.Public().(ed25519.PublicKey))
	}
	for _, name := range covered {
		if name == "content-digest" {
			header.Set("Content-Digest", Digest(body))
		}
	}
	params := fmt.Sprintf(`("%s");created=%d;expires=%d;nonce="%s";alg="ed25519";keyid="%s"`,
		strings.Join(covered, `" "`), at.Unix(), at.Add(Life).Unix(), rand.Text(), id)
	text, err := base(&Request{method, u.String(), header, body}, covered, params)
	if err != nil {
		return err
	}
	header.Set("Signature-Input", label+"="+params)
	header.Set("Signature", label+"=:"+base64.StdEncoding.EncodeToString(ed25519.Sign(s.Key, text))+":")
	return nil
}
