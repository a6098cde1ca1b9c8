package devnet

import (
	"crypto/ed25519"
	"encoding/hex"
	"strings"

	"github.com/postern-dev/postern/internal/fault"
)

// addressMark begins every address.
const addressMark = "dn"

// Address names an account: "dn" and the 64 hexadecimal digits of its public key.
type Address string

// AddressOf returns the address that a key signs for.
func AddressOf(key ed25519.PrivateKey) Address {
	return Address(addressMark + hex.EncodeToString(key.Public().(ed25519.PublicKey)))
}

// IsAddress says whether s is one; anything else that is called is the name of an app.
func IsAddress(s string) bool {
	_, err := Address(s).key()
	return err == nil
}

// key returns the public key in an address.
func (a Address) key() (ed25519.PublicKey, error) {
	digits, ok := strings.CutPrefix(string(a), addressMark)
	raw, err := hex.DecodeString(digits)
	if !ok || err != nil || len(raw) != ed25519.PublicKeySize || digits != strings.ToLower(digits) {
		return nil, fault.At("/address", "%q is no address: want dn and 64 hexadecimal digits in lower case",
			fault.Clip(string(a)))
	}
	return raw, nil
}
