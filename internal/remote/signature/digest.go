package signature

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"

	"github.com/dunglas/httpsfv"
)

// digests are the algorithms of RFC 9530 that are verified; others are passed over.
var digests = map[string]func([]byte) []byte{
	"sha-256": func(b []byte) []byte { sum := sha256.Sum256(b); return sum[:] },
	"sha-512": func(b []byte) []byte { sum := sha512.Sum512(b); return sum[:] },
}

// Digest is the Content-Digest of a body.
func Digest(body []byte) string {
	return "sha-256=:" + base64.StdEncoding.EncodeToString(digests["sha-256"](body)) + ":"
}

// CheckDigest says why Content-Digest is not that of a body as it was received, nil if it is. Each digest that can be
// verified must be that of the body, so that two never disagree.
func CheckDigest(header http.Header, body []byte) error {
	values := header.Values("Content-Digest")
	if len(values) == 0 {
		return errors.New("Content-Digest is missing: want sha-256=:base64: of the body as it is sent")
	}
	d, err := dictionary("Content-Digest", values)
	if err != nil {
		return err
	}
	known := false
	for _, name := range d.Names() {
		sum := digests[name]
		if sum == nil {
			continue
		}
		known = true
		member, _ := d.Get(name)
		item, _ := member.(httpsfv.Item)
		if said, ok := item.Value.([]byte); !ok || !bytes.Equal(said, sum(body)) {
			return fmt.Errorf("Content-Digest: %s is not that of the body", name)
		}
	}
	if !known {
		return errors.New("Content-Digest has neither sha-256 nor sha-512, one of which is to be there")
	}
	return nil
}
