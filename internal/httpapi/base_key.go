package httpapi

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"regexp"
	"strings"
)

// An API key is postern_<prefix>_<secret>: the prefix is public and finds its row, of the secret only the
// SHA-256 of the whole is kept. Secrets are 32 random bytes, so that a plain hash is enough.
var keyRegexp = regexp.MustCompile(`^postern_([a-z0-9]{8})_[A-Za-z0-9_-]{43,128}$`)

// KeyForm says how an API key is written.
const KeyForm = "postern_<8 of a-z 0-9>_<at least 43 of A-Z a-z 0-9 _ ->"

// ParseKey returns the prefix of an API key and what is kept of it; false for what cannot be one.
func ParseKey(key string) (prefix string, hash []byte, ok bool) {
	m := keyRegexp.FindStringSubmatch(key)
	if m == nil {
		return "", nil, false
	}
	sum := sha256.Sum256([]byte(key))
	return m[1], sum[:], true
}

// DrawKey returns a new API key, drawn at random.
func DrawKey() string {
	key, _, _ := newKey("")
	return key
}

// newKey draws a key; with a prefix it is another secret of that key.
func newKey(prefix string) (key, ofPrefix string, hash []byte) {
	if prefix == "" {
		prefix = draw(5)
	}
	key = "postern_" + prefix + "_" + draw(32)
	_, hash, _ = ParseKey(key)
	return key, prefix, hash
}

// draw returns n random bytes as letters and digits, so that a double click takes all of it.
func draw(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b))
}
