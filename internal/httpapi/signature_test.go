package httpapi_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/httpapi"
	"github.com/postern-dev/postern/internal/remote/signature"
)

func drawn(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func public(key ed25519.PrivateKey) string {
	return base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey))
}

func keyID(key ed25519.PrivateKey) string { return signature.ID(key.Public().(ed25519.PublicKey)) }

// signed are the headers of a request that a key has signed, some that it sends among them.
func (d *door) signed(key ed25519.PrivateKey, method, path, body string, more ...string) []string {
	return d.signedAt(time.Now(), d.url, key, method, path, body, more...)
}

// signedAt is signed at a time, for a server of another URL.
func (d *door) signedAt(
	at time.Time, url string, key ed25519.PrivateKey, method, path, body string, more ...string,
) []string {
	d.t.Helper()
	h := http.Header{}
	for _, line := range more {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	if err := (signature.Signer{Key: key}).Sign(h, method, url+path, []byte(body), at); err != nil {
		d.t.Fatal(err)
	}
	var list []string
	for name, values := range h {
		for _, v := range values {
			list = append(list, name+": "+v)
		}
	}
	return list
}

// asActor is want for a request that a key has signed.
func (d *door) asActor(status int, key ed25519.PrivateKey, method, path, body string, more ...string) answer {
	d.t.Helper()
	return d.want(status, method, path, body, d.signed(key, method, path, body, more...)...)
}

// Each thing that may be wrong with a signature, and what is said.
func TestASignatureThatDoesNotHoldIsRefused(t *testing.T) {
	d, root := closedDoor(t)
	key, stranger := drawn(t), drawn(t)
	ann := d.want(201, "POST", "/actors", fmt.Sprintf(`{"public_keys": [%q]}`, public(key)), root).str("id")
	d.want(201, "PUT", "/contexts/shop", fmt.Sprintf(`{"admins": [%q]}`, ann), root)
	d.asActor(201, key, "PUT", "/dispatchers/pay", `{"worker_url": "noop:"}`)
	const path, body = "/transactions", `{"type": "pay"}`
	now := time.Now()
	at := func(d2 time.Duration) []string { return d.signedAt(now.Add(d2), d.url, key, "POST", path, body) }
	change := func(list []string, name, from, to string) (changed []string) {
		for _, line := range list {
			if strings.HasPrefix(line, name+": ") {
				if line = strings.Replace(line, from, to, 1); to == "-" {
					continue
				}
			}
			changed = append(changed, line)
		}
		return changed
	}
	right := func(more ...string) []string { return d.signed(key, "POST", path, body, more...) }
	with := func(list []string, more ...string) []string { return append(list, more...) }
	refused := func(status int, code, name, says string, headers []string) {
		t.Helper()
		a := d.call("POST", path, body, headers...)
		if a.status != status || a.str("code") != code || !strings.Contains(a.str("detail"), says) {
			t.Errorf("%s: %d %s", name, a.status, a.raw)
		}
	}
	no := func(name, says string, headers []string) {
		t.Helper()
		refused(401, "unauthenticated", name, says, headers)
	}
	unread := func(name, says string, headers []string) {
		t.Helper()
		refused(400, "bad_signature_input", name, says, headers)
	}
	const fails = "it does not hold"
	no("a foreign key", "names a key of an actor", d.signed(stranger, "POST", path, body))
	no("a changed body", "sha-256 is not that of the body", d.signed(key, "POST", path, `{"type": "pay", "uid": "q"}`))
	no("another method", fails, d.signed(key, "PUT", path, body))
	no("another path", fails, d.signed(key, "POST", path+"?dry_run=true", body))
	no("another host", "for POST "+d.url, d.signedAt(now, "https://postern.example", key, "POST", path, body))
	no("six minutes ahead", "ahead of the clock here", at(6*time.Minute))
	no("six minutes behind", "the clock of the one who signs is behind by that", at(-6*time.Minute))
	no("ten minutes ago", "it was created 10m", at(-10*time.Minute))
	no("no digest", "Content-Digest is missing", change(right(), "Content-Digest", "", "-"))
	no("two that disagree", "sha-512 is not that of the body", with(right(), "Content-Digest: sha-512=:AAAA:"))
	no("a header not signed", "it does not cover postern-context", with(right(), "Postern-Context: shop"))
	no("a header changed", fails, change(right("Idempotency-Key: a"), "Idempotency-Key", "a", "b"))
	no("no created", fails, change(right(), "Signature-Input", ";created", ";made"))
	no("another nonce", fails, change(right(), "Signature-Input", `nonce="`, `nonce="A`))
	unread("no signature", "Signature", change(right(), "Signature", "", "-"))
	unread("a parameter twice", "twice", change(right(), "Signature-Input", ";nonce", ";created=1;nonce"))
	unread("a component twice", "twice", change(right(), "Signature-Input", `"@method"`, `"@method" "@method"`))
	unread("a flag", "parameter req", change(right(), "Signature-Input", `"@method"`, `"@method";req`))
	unread("no list", "no list of components", with(nil, "Signature-Input: a", "Signature: a=:AAAA:"))
	unread("not even text", "RFC 8941", with(nil, "Signature-Input: ((", "Signature: a=:AAAA:"))

	// the text says by how much a clock is off
	for off, says := range map[time.Duration][]string{
		6 * time.Minute:  {"created 6m0s ahead", "created 5m59s ahead", "created 5m58s ahead"},
		-6 * time.Minute: {"created 6m0s ago", "created 6m1s ago", "created 6m2s ago"},
	} {
		headers := d.signedAt(time.Now().Add(off), d.url, key, "POST", path, body)
		detail := d.call("POST", path, body, headers...).str("detail")
		if !slices.ContainsFunc(says, func(s string) bool { return strings.Contains(detail, s) }) {
			t.Errorf("a clock off by %s: %s", off, detail)
		}
	}
	if a := d.want(200, "GET", "/transactions", "", root, "Postern-Context: shop"); len(a.body["items"].([]any)) != 0 {
		t.Errorf("something was stored: %s", a.raw)
	}
	for _, fine := range [][]string{
		at(50 * time.Second), at(-4 * time.Minute), right(), right("Idempotency-Key: k", "Postern-Context: shop"),
	} {
		d.want(201, "POST", path, body, fine...)
	}
}

// A nonce is used once, by whichever process, and only by what holds.
func TestANonceIsUsedOnceOverAllProcesses(t *testing.T) {
	d, root := closedDoor(t)
	key := drawn(t)
	ann := d.want(201, "POST", "/actors", fmt.Sprintf(`{"public_keys": [%q]}`, public(key)), root).str("id")
	second := doorTo(t, d.store, func(c *httpapi.Config) { c.Auth, c.PublicURL = "required", d.url })
	path := "/actors/" + ann
	headers := d.signed(key, "GET", path, "")
	d.refused(401, "unauthenticated", "GET", path+"?x=1", "", headers...) // does not hold: the nonce is free
	d.want(200, "GET", path, "", headers...)
	d.refused(401, "replayed_signature", "GET", path, "", headers...)
	second.refused(401, "replayed_signature", "GET", path, "", headers...)
	second.want(200, "GET", path, "", d.signed(key, "GET", path, "")...)
	var rows int
	err := d.store.Pool().QueryRow(t.Context(), `SELECT count(*) FROM postern.nonce`).Scan(&rows)
	if err != nil || rows != 2 {
		t.Errorf("%d nonces are kept, want 2: %v", rows, err)
	}
}

// Behind a proxy the target is the public URL, with the path that the proxy takes away.
func TestTheTargetIsThePublicURL(t *testing.T) {
	d, root := closedDoor(t, func(c *httpapi.Config) { c.PublicURL = "https://postern.example/api" })
	key := drawn(t)
	ann := d.want(201, "POST", "/actors", fmt.Sprintf(`{"public_keys": [%q]}`, public(key)), root).str("id")
	path := "/actors/" + ann
	d.want(200, "GET", path, "", d.signedAt(time.Now(), "https://postern.example/api", key, "GET", path, "")...)
	a := d.refused(401, "unauthenticated", "GET", path, "", d.signed(key, "GET", path, "")...)
	if !strings.Contains(a.str("detail"), "https://postern.example/api") {
		t.Error(a.raw)
	}
	// without one, what was signed for another host is not let in by naming that host
	e, root2 := closedDoorAgain(t)
	e.want(201, "POST", "/actors", fmt.Sprintf(`{"public_keys": [%q]}`, public(key)), root2)
	headers := e.signedAt(time.Now(), "http://other.example", key, "GET", "/queues", "")
	b := e.refused(401, "unauthenticated", "GET", "/queues", "", append(headers, "Host: other.example")...)
	if !strings.Contains(b.str("detail"), "POSTERN_PUBLIC_URL") {
		t.Error(b.raw)
	}
}

// closedDoorAgain is closedDoor for a test that has one.
func closedDoorAgain(t *testing.T) (*door, string) {
	t.Helper()
	d := openDoor(t, func(c *httpapi.Config) { c.Auth = "required" })
	const key = "postern_bootstra_0123456789012345678901234567890123456789012"
	prefix, hash, _ := httpapi.ParseKey(key)
	if stored, err := d.store.Actors.BootstrapKey(t.Context(), prefix, hash); err != nil || !stored {
		t.Fatal(stored, err)
	}
	return d, "Authorization: Bearer " + key
}

// Several signatures: those that name a known key must all hold, and name one actor; others are not looked at.
func TestAllSignaturesThatNameAKnownKeyMustHold(t *testing.T) {
	d, root := closedDoor(t)
	old, next, stranger := drawn(t), drawn(t), drawn(t)
	body := fmt.Sprintf(`{"public_keys": [%q, %q]}`, public(old), public(next))
	ann := d.want(201, "POST", "/actors", body, root).str("id")
	bob := drawn(t)
	d.want(201, "POST", "/actors", fmt.Sprintf(`{"public_keys": [%q]}`, public(bob)), root)
	path := "/actors/" + ann
	sign := func(label, target string, key ed25519.PrivateKey) http.Header {
		h := http.Header{}
		if err := (signature.Signer{Label: label, Key: key}).Sign(h, "GET", target, nil, time.Now()); err != nil {
			t.Fatal(err)
		}
		return h
	}
	both := func(a, b http.Header) []string {
		return []string{
			"Signature-Input: " + a.Get("Signature-Input") + ", " + b.Get("Signature-Input"),
			"Signature: " + a.Get("Signature") + ", " + b.Get("Signature"),
		}
	}
	d.want(200, "GET", path, "", both(sign("a", d.url+path, old), sign("b", d.url+path, next))...)
	d.want(200, "GET", path, "", both(sign("a", d.url+path, old), sign("b", "http://x/", stranger))...)
	for _, second := range []http.Header{sign("b", "http://x/", next), sign("b", d.url+path, bob)} {
		d.refused(401, "unauthenticated", "GET", path, "", both(sign("a", d.url+path, old), second)...)
	}
	// beside another credential, both must name one actor
	d.refused(401, "unauthenticated", "GET", path, "", append(d.signed(old, "GET", path, ""), root)...)
}

// A database that was restored may have lost nonces: signatures that were made before that hold no more.
func TestWhatWasSignedBeforeARestoreHoldsNoMore(t *testing.T) {
	d, root := closedDoor(t)
	key := drawn(t)
	ann := d.want(201, "POST", "/actors", fmt.Sprintf(`{"public_keys": [%q]}`, public(key)), root).str("id")
	path := "/actors/" + ann
	before := d.signedAt(time.Now().Add(-2*time.Second), d.url, key, "GET", path, "")
	d.want(200, "POST", "/quarantine/enter", `{"reason": "restored"}`, root)
	a := d.refused(401, "unauthenticated", "GET", path, "", before...)
	if !strings.Contains(a.str("detail"), "restored") {
		t.Error(a.raw)
	}
	d.want(200, "GET", path, "", d.signedAt(time.Now().Add(2*time.Second), d.url, key, "GET", path, "")...)
}
