package signature

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// Signatures that are read are one to eight, each with bytes, with no component named twice, and with moments that fit
// into a row. Headers that are refused are refused by a sentence.
func FuzzParse(f *testing.F) {
	const list = `a=("@method" "@target-uri" "content-digest");created=1618884473;expires=1618884773` +
		`;nonce="n";keyid="k"`
	for _, input := range []string{list, list + `, b=();created=1`, `a=("@method";req)`, `a=("x" "x")`, `a=("X")`,
		`a=("@method");created=-1`, `a=("@method");created=9999999999999`, `a=("@method");keyid=7`, `a`, `a=1, a=2`,
		`a=("@method");nonce="a\"b\\";created=1`, "a=(\"@method\"\t\"@path\")", `a=("")`} {
		f.Add(input, `a=:AAAA:`)
		f.Add(input, `a=:AAAA:, b=:BBBB:`)
		f.Add(input, `a=::`)
	}
	f.Fuzz(func(t *testing.T, input, value string) {
		read, err := Parse(http.Header{"Signature-Input": {input}, "Signature": {value}})
		if err != nil {
			if err.Error() == "" || read != nil {
				t.Errorf("%q %q: %v, %v", input, value, read, err)
			}
			return
		}
		if len(read) == 0 || len(read) > most {
			t.Errorf("%q has %d signatures", input, len(read))
		}
		for _, s := range read {
			names := slices.Sorted(slices.Values(s.covered))
			if len(s.value) == 0 || len(slices.Compact(names)) != len(s.covered) {
				t.Errorf("%q %q is %+v", input, value, s)
			}
			for _, at := range []time.Time{s.Created, s.Expires} {
				if !at.IsZero() && (at.Unix() < 0 || at.Unix() > lastMoment+int64(Life/time.Second)) {
					t.Errorf("%q is of %s", input, at)
				}
			}
		}
	})
}

// A header that is taken for the digest of a body is that of no other body, and holds an algorithm that is known.
func FuzzCheckDigest(f *testing.F) {
	for _, body := range []string{"", "{}", `{"a":1}`} {
		right := Digest([]byte(body))
		for _, header := range []string{right, right + ", md5=:AAAA:", "sha-256=:AAAA:, " + right,
			right + ", sha-512=:AAAA:", strings.Replace(right, "sha-256", "SHA-256", 1), "sha-256", "sha-256=1", ""} {
			f.Add(header, []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, header string, body []byte) {
		h := http.Header{"Content-Digest": {header}}
		if CheckDigest(h, body) != nil {
			return
		}
		if !strings.Contains(header, "sha-256") && !strings.Contains(header, "sha-512") {
			t.Errorf("%q holds no digest that is known", header)
		}
		if CheckDigest(h, append(slices.Clone(body), ' ')) == nil {
			t.Errorf("%q is that of two bodies", header)
		}
	})
}
