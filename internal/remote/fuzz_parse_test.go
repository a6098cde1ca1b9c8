package remote

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/postern-dev/postern/internal/outbox"
)

// now is the time in which answers come here.
var fuzzNow = time.Date(2026, 11, 19, 0, 0, 0, 0, time.UTC)

// A header Retry-After puts off by seconds or until a date, within what we wait at most; and what stands before a
// worker puts off no more than a foreign answer may.
func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"", "0", "120", "-1", "9223372036854775807", "99999999999999999999", "1e9", " 5",
		"Thu, 19 Nov 2026 00:01:00 GMT", "Thursday, 19-Nov-26 00:01:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT"} {
		f.Add(s, 503, "")
		f.Add(s, 429, `{"error":{"class":"retry","after":"1h"}}`)
	}
	f.Fuzz(func(t *testing.T, header string, status int, body string) {
		h := http.Header{"Retry-After": {header}}
		d := retryAfter(h, fuzzNow)
		if d < 0 || d > maxWait {
			t.Errorf("%q is a wait of %s", header, d)
		}
		p := reply{status: 200 + (status&0x7fffffff)%400, header: h, body: []byte(body), sent: true}
		a := classify(p, fuzzNow)
		if a.After < 0 || a.After > maxWait || a.Until.After(fuzzNow.Add(maxWait)) {
			t.Errorf("%q and %q wait %s, until %s", header, body, a.After, a.Until)
		}
		if !a.Told && (a.After > maxForeignWait || a.Until.After(fuzzNow.Add(maxForeignWait))) {
			t.Errorf("%q of %q, which is not the worker's word, waits %s, until %s", header, body, a.After, a.Until)
		}
	})
}

// Whatever a worker says of a status can be stored, is about what was asked, and says nothing where it is not
// understood.
func FuzzReadStatus(f *testing.F) {
	for _, s := range []string{`{"state":"included","hash":"h","block_height":"7","confirmations":3}`,
		`{"state":"done","done":{"a":1}}`,
		`{"state":"failed","failure_reason":{"x":"\u0000"}}`, `{"state":"pending","hash":7}`,
		`{"state":"unknown"}`, `{}`, `[]`, "null",
		`{"state":"included","block_height":1e99,"confirmations":-1}`, `{"STATE":"done","done":[` +
			strings.Repeat("[", 90) + strings.Repeat("]", 90) + `]}`} {
		f.Add([]byte(s), "h")
		f.Add([]byte(s), "")
	}
	known := map[outbox.StatusState]bool{outbox.StatusPending: true, outbox.StatusUnknown: true,
		outbox.StatusFailed:   true,
		outbox.StatusIncluded: true, outbox.StatusUnreachable: true}
	f.Fuzz(func(t *testing.T, body []byte, hash string) {
		st := readStatus(body, hash)
		if !known[st.State] {
			t.Errorf("%q: state %q", body, st.State)
		}
		if hash != "" && st.State != outbox.StatusUnreachable && st.Hash != "" && st.Hash != hash {
			t.Errorf("%q: asked after %q, told of %q", body, hash, st.Hash)
		}
		if st.State == outbox.StatusUnreachable && (st.Message == "" || st.Done != nil) {
			t.Errorf("%q: %+v", body, st)
		}
		for _, s := range []string{st.Hash, st.Nonce, st.BlockHeight, st.FailureReason, st.Message} {
			if strings.ContainsRune(s, 0) || !utf8.ValidString(s) || len(s) > maxMessage+512 {
				t.Errorf("%q: %q cannot be stored", body, s)
			}
		}
		if st.Done != nil && (!utf8.Valid(st.Done) || holdsNUL(st.Done)) {
			t.Errorf("%q: %s cannot be stored", body, st.Done)
		}
		if st.Confirmations < 0 {
			t.Errorf("%q: %d confirmations", body, st.Confirmations)
		}
	})
}

// A secret and a public key are read as they are written, and a secret is in no error.
func FuzzKeys(f *testing.F) {
	f.Add("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	f.Add("whpk_" + base64.StdEncoding.EncodeToString(make([]byte, ed25519.PublicKeySize)))
	for _, s := range []string{"", "whsec_", "whsec_====", "whpk_AA==", "AAAA\nAAAA"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if key, err := ParseSecret(text); err == nil &&
			"whsec_"+base64.StdEncoding.EncodeToString(key) != strings.NewReplacer("\r", "", "\n", "").Replace(text) {
			t.Errorf("%q is the secret %x", text, key)
		} else if err != nil && len(text) > 8 && strings.Contains(err.Error(), text) {
			t.Errorf("%q is in %v", text, err)
		}
		key, err := ParsePublicKey(text)
		if err != nil {
			return
		}
		again, err := ParsePublicKey("whpk_" + base64.StdEncoding.EncodeToString(key))
		if err != nil || !again.Equal(key) {
			t.Errorf("%q is %x, which comes back as %x: %v", text, key, again, err)
		}
	})
}

// unblanked is a header without blanks, which structured fields may have between their parts.
func unblanked(s string) string { return strings.NewReplacer(" ", "", "\t", "").Replace(s) }

// No header but the one that was signed holds: of a signed request each part may be replaced, and then it is refused.
func FuzzVerify(f *testing.F) {
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	const target = "https://peer.example/batches"
	signedHeader := func() http.Header {
		h := http.Header{"Idempotency-Key": {"1@2"}}
		if err := sign(h, "POST", target, []byte("{}"), key, fuzzNow); err != nil {
			f.Fatal(err)
		}
		return h
	}
	const list = `("@method" "@target-uri" "content-digest" "idempotency-key")`
	h := signedHeader()
	for name := range h {
		f.Add(name, h.Get(name), "{}")
		f.Add(name, h.Get(name)+" ", "{}")
	}
	f.Add("Signature-Input", "postern="+list+";created=1;expires=99999999999", "{}")
	f.Add("Signature-Input", "postern="+list+";created=-999999999999999;expires=999999999999999", "{}")
	f.Fuzz(func(t *testing.T, name, value, body string) {
		h := signedHeader()
		was := http.CanonicalHeaderKey(name)
		same, alike := h.Get(was) == value || h[was] == nil, unblanked(h.Get(was)) == unblanked(value) || h[was] == nil
		h.Set(was, value)
		r, err := http.NewRequestWithContext(context.Background(), "POST", target, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = h
		err = Verify(r, []byte(body), target, key.Public().(ed25519.PublicKey), fuzzNow)
		wrong := err == nil && (!alike || body != "{}") || err != nil && same && body == "{}"
		if wrong && !strings.EqualFold(name, "Signature") {
			t.Errorf("%s: %q with the body %q: %v", name, value, body, err)
		}
		if err == nil && body != "{}" {
			t.Errorf("the body %q was never signed", body)
		}
	})
}
