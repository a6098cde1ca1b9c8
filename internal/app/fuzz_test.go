package app_test

import (
	"encoding"
	"fmt"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/app"
)

// setting is a value of a setting as it is read and written.
type setting interface {
	encoding.TextUnmarshaler
	fmt.Stringer
}

// A setting is written as a text that is read as the same value, and the refusal of one says what would be right.
func FuzzSettings(f *testing.F) {
	for _, s := range []string{"keep", "off", "1", "0", "-1", "36500", "36501", "1MiB", "512 KiB", "1048576GiB",
		"1048577GiB", "9223372036854775807", "+1", "01", "1_0", "B", " 1", "", "1000000"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for name, pair := range map[string][2]setting{
			"days": {new(app.Days), new(app.Days)},
			"size": {new(app.Size), new(app.Size)},
			"rate": {new(app.Rate), new(app.Rate)},
		} {
			v, again := pair[0], pair[1]
			if err := v.UnmarshalText([]byte(text)); err != nil {
				if v.String() != again.String() || !strings.Contains(err.Error(), "want") {
					t.Errorf("%s %q: %v, and is %s", name, text, err, v)
				}
				continue
			}
			if err := again.UnmarshalText([]byte(v.String())); err != nil || v.String() != again.String() {
				t.Errorf("%s %q is %s, which is %s: %v", name, text, v, again, err)
			}
		}
	})
}

// A signing key that is no key is refused without a word of it.
func FuzzSigningKey(f *testing.F) {
	f.Add("whsk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
	f.Add("-----BEGIN PRIVATE " +
		"KEY-----\nMC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f\n-----END PRIVATE KEY-----\n")
	f.Add("-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n")
	f.Add("whsk_====")
	f.Fuzz(func(t *testing.T, text string) {
		var k app.SigningKey
		err := k.UnmarshalText([]byte(text))
		switch {
		case err == nil && len(text) > 0 && len(k) != 64:
			t.Errorf("%q is a key of %d bytes", text, len(k))
		case err == nil && len(text) > 0 && !strings.HasPrefix(k.Public(), "whpk_"):
			t.Errorf("%q has the public key %q", text, k.Public())
		case err != nil && len(text) > 16 && strings.Contains(err.Error(), strings.TrimSpace(text)):
			t.Errorf("%q is in %v", text, err)
		}
	})
}
