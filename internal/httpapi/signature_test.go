package httpapi_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
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

// signed are the headers of a request that a key has signed, some that it sends among them.
func (d *door) signed(key ed25519.PrivateKey, method, path, body string, more ...string) []string {
	return d.signedAt(time.Now(), d.url, key, method, path, body, more...)
}

// signedAt is signed at a time, for a server of another URL.
func (d *door) signedAt(at time.Time, url string, key ed25519.PrivateKey, method, path, body string, more ...string) []string {
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

// open lets actors register themselves.
func open(c *httpapi.Config) { c.Registration = "open" }

func TestAnActorRegistersItselfByARequestThatItsKeyHasSigned(t *testing.T) {
	d, root := closedDoor(t, open)
	key := drawn(t)
	body := fmt.Sprintf(`{"public_keys": [%q], "own_context": "anns"}`, public(key))
	a := d.asActor(201, key, "POST", "/actors", body)
	ann := a.str("id")
	if keys := a.body["public_keys"].([]any); len(keys) != 1 || keys[0] != public(key) || a.body["roles"].(map[string]any)["anns"] != "admin" {
		t.Error(a.raw)
	}
	if b := d.asActor(200, key, "POST", "/actors", body); b.str("id") != ann || b.header.Get("Idempotent-Replay") != "true" {
		t.Error("who registers again is another: " + b.raw)
	}
	// it is an actor like any other, and makes contexts
	d.asActor(200, key, "GET", "/actors/"+ann, "")
	d.asActor(201, key, "PUT", "/dispatchers/pay", `{"worker_url": "noop:"}`)
	if p := d.asActor(201, key, "POST", "/transactions", `{"type": "pay", "uid": "a"}`, "Idempotency-Key: a"); p.str("actor") != ann {
		t.Error(p.raw)
	}
	if c := d.asActor(201, key, "PUT", "/contexts/second", `{"max_depth": 5}`); fmt.Sprint(c.body["admins"]) != "["+ann+"]" {
		t.Error(c.raw)
	}
	d.want(201, "PUT", "/contexts/shop", `{}`, root)
	d.want(404, "PUT", "/contexts/shop", `{}`, d.signed(key, "PUT", "/contexts/shop", `{}`)...)
	// the name of a context that was is not given to a stranger
	d.want(201, "PUT", "/contexts/gone", `{}`, root)
	d.want(204, "DELETE", "/contexts/gone", "", root)
	d.refused(409, "in_use", "PUT", "/contexts/gone", `{}`, d.signed(key, "PUT", "/contexts/gone", `{}`)...)
	other := drawn(t)
	for _, taken := range []string{"gone", "anns"} {
		body := fmt.Sprintf(`{"own_context": %q}`, taken)
		d.refused(409, "in_use", "POST", "/actors", body, d.signed(other, "POST", "/actors", body)...)
	}
	// what is signed once registers once, and it brings no other key, and no identity
	headers := d.signed(other, "POST", "/actors", `{}`)
	d.want(201, "POST", "/actors", `{}`, headers...)
	d.refused(401, "replayed_signature", "POST", "/actors", `{}`, headers...)
	third := drawn(t)
	for status, body := range map[int]string{
		422: fmt.Sprintf(`{"public_keys": [%q]}`, public(key)),
		403: `{"oidc": {"issuer": "https://id.example", "subject": "ann"}}`,
	} {
		d.want(status, "POST", "/actors", body, d.signed(third, "POST", "/actors", body)...)
	}
	d.refused(401, "unauthenticated", "GET", "/queues", "", d.signed(third, "GET", "/queues", "")...)
	if who := d.want(200, "GET", "/audit?object=/actors/"+ann, "", root, "Postern-Context: system"); !strings.Contains(who.raw, `"actor":"`+ann+`"`) {
		t.Error(who.raw)
	}
}

func TestWhereRegistrationIsClosedAdminsMakeActors(t *testing.T) {
	d, root := closedDoor(t)
	key := drawn(t)
	d.refused(401, "unauthenticated", "POST", "/actors", `{}`, d.signed(key, "POST", "/actors", `{}`)...)
	ann := d.want(201, "POST", "/actors", fmt.Sprintf(`{"public_keys": [%q]}`, public(key)), root).str("id")
	d.asActor(200, key, "GET", "/actors/"+ann, "")
	d.refused(403, "forbidden", "POST", "/actors", `{}`, d.signed(key, "POST", "/actors", `{}`)...)
	d.refused(404, "not_found", "PUT", "/contexts/anns", `{}`, d.signed(key, "PUT", "/contexts/anns", `{}`)...)
	if i := d.asActor(200, key, "GET", "/identity", ""); i.str("registration") != "closed" || i.str("installation") == "" {
		t.Error(i.raw)
	}
	// it changes itself alone, and not who it is to a provider
	bob := d.want(201, "POST", "/actors", `{}`, root).str("id")
	d.asActor(200, key, "PATCH", "/actors/"+ann, `{"address": ["https://ann.example"]}`)
	oidc := `{"oidc": {"issuer": "https://id.example", "subject": "root"}}`
	d.refused(403, "forbidden", "PATCH", "/actors/"+ann, oidc, d.signed(key, "PATCH", "/actors/"+ann, oidc)...)
	for _, path := range []string{"/actors/" + bob, "/actors/nobody"} {
		d.refused(404, "not_found", "PATCH", path, `{}`, d.signed(key, "PATCH", path, `{}`)...)
		d.refused(404, "not_found", "GET", path, "", d.signed(key, "GET", path, "")...)
		d.refused(404, "not_found", "DELETE", path+"/keys/"+signature.ID(key.Public().(ed25519.PublicKey)), "",
			d.signed(key, "DELETE", path+"/keys/"+signature.ID(key.Public().(ed25519.PublicKey)), "")...)
	}
}

// The keys of small order, and those of others, name nobody new.
func TestAPublicKeyThatIsTakenOrForgeableIsRefused(t *testing.T) {
	d, root := closedDoor(t, open)
	key := drawn(t)
	ann := d.want(201, "POST", "/actors", fmt.Sprintf(`{"public_keys": [%q]}`, public(key)), root).str("id")
	before := d.want(200, "GET", "/actors", "", root).raw
	for body, code := range map[string]string{
		fmt.Sprintf(`{"public_keys": [%q]}`, public(key)):                       "409 in_use",
		`{"public_keys": ["AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="]}`:     "422 invalid", // the neutral point
		`{"public_keys": ["7P///////////////////////////////////////38="]}`:     "422 invalid", // of order 2
		`{"public_keys": ["AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="]}`:     "422 invalid", // of order 4
		`{"public_keys": ["xxdqcD1N2E+6PAt2DRBnDyogU/osOczGTsf9d5KsA3o="]}`:     "422 invalid", // of order 8
		`{"public_keys": ["AgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="]}`:     "422 invalid", // no point
		fmt.Sprintf(`{"public_keys": [%q, %q]}`, public(drawn(t)), public(key)): "409 in_use",
		`{"public_keys": ["` + strings.Repeat("A", 44) + `"]}`:                  "422 invalid",
	} {
		status, name, _ := strings.Cut(code, " ")
		if got, said := d.status("POST", "/actors", body, root); fmt.Sprint(got) != status || said != name {
			t.Errorf("%s: %d %s, want %s", body, got, said, code)
		}
	}
	if after := d.want(200, "GET", "/actors", "", root).raw; after != before {
		t.Errorf("something was stored: %s", after)
	}
	_ = ann
}

func TestAKeyIsRotated(t *testing.T) {
	d, root := closedDoor(t)
	old, next := drawn(t), drawn(t)
	ann := d.want(201, "POST", "/actors", fmt.Sprintf(`{"public_keys": [%q]}`, public(old)), root).str("id")
	bob := d.want(201, "POST", "/actors", `{}`, root).str("id")
	here := d.asActor(200, old, "GET", "/identity", "").str("installation")
	keys := "/actors/" + ann + "/keys"
	add := func(key ed25519.PrivateKey, proof string) string {
		return fmt.Sprintf(`{"public_key": %q, "proof": %q}`, public(key), proof)
	}
	// only the new key itself proves that it is to be one of this actor, here
	for _, proof := range []string{
		"", "?", signature.Prove(old, here, ann), signature.Prove(next, here, bob), signature.Prove(next, "there", ann),
	} {
		body := add(next, proof)
		d.refused(422, "invalid", "POST", keys, body, d.signed(old, "POST", keys, body)...)
	}
	body := add(next, signature.Prove(next, here, ann))
	d.refused(401, "unauthenticated", "POST", keys, body, d.signed(next, "POST", keys, body)...)
	d.asActor(201, old, "POST", keys, body)
	d.asActor(200, next, "POST", keys, body) // it has it
	third := drawn(t)
	more := add(third, signature.Prove(third, here, ann))
	d.refused(409, "wrong_state", "POST", keys, more, d.signed(old, "POST", keys, more)...)
	taken := add(next, signature.Prove(next, here, bob))
	d.refused(409, "in_use", "POST", "/actors/"+bob+"/keys", taken, root)
	d.asActor(200, old, "GET", "/actors/"+ann, "")

	gone := keys + "/" + signature.ID(old.Public().(ed25519.PublicKey))
	d.asActor(204, next, "DELETE", gone, "")
	d.refused(401, "unauthenticated", "GET", "/actors/"+ann, "", d.signed(old, "GET", "/actors/"+ann, "")...)
	a := d.asActor(200, next, "GET", "/actors/"+ann, "")
	list := a.body["keys"].([]any)
	if len(list) != 2 || list[0].(map[string]any)["public_key"] != public(next) || list[1].(map[string]any)["retired_at"] == nil ||
		list[1].(map[string]any)["compromised"] != false || len(a.body["public_keys"].([]any)) != 1 {
		t.Error(a.raw)
	}
	d.asActor(204, next, "DELETE", gone, "") // it is retired
	d.asActor(204, next, "DELETE", gone+"?compromised=true", "")
	if a := d.want(200, "GET", "/actors/"+ann, "", root); a.body["keys"].([]any)[1].(map[string]any)["compromised"] != true {
		t.Error(a.raw)
	}
	back := add(old, signature.Prove(old, here, ann))
	d.refused(409, "wrong_state", "POST", keys, back, d.signed(next, "POST", keys, back)...)
	d.refused(404, "not_found", "DELETE", keys+"/"+signature.ID(third.Public().(ed25519.PublicKey)), "", root)
	d.asActor(201, next, "POST", keys, more)
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
	digest512 := "Content-Digest: sha-512=:AAAA:"
	for name, c := range map[string]struct {
		headers []string
		code    string
		says    string
	}{
		"a foreign key":       {d.signed(stranger, "POST", path, body), "unauthenticated", "names a key of an actor"},
		"a changed body":      {d.signed(key, "POST", path, `{"type": "pay", "queue": "q"}`), "unauthenticated", "sha-256 is not that of the body"},
		"another method":      {d.signed(key, "PUT", path, body), "unauthenticated", "it does not hold"},
		"another path":        {d.signed(key, "POST", path+"?dry_run=true", body), "unauthenticated", "it does not hold"},
		"another host":        {d.signedAt(now, "https://postern.example", key, "POST", path, body), "unauthenticated", "for POST " + d.url},
		"six minutes ahead":   {at(6 * time.Minute), "unauthenticated", "ahead of the clock here"},
		"six minutes behind":  {at(-6 * time.Minute), "unauthenticated", "the clock of the one who signs is behind by that"},
		"ten minutes ago":     {at(-10 * time.Minute), "unauthenticated", "it was created 10m"},
		"no digest":           {change(right(), "Content-Digest", "", "-"), "unauthenticated", "Content-Digest is missing"},
		"two that disagree":   {with(right(), digest512), "unauthenticated", "sha-512 is not that of the body"},
		"a header not signed": {with(right(), "Postern-Context: shop"), "unauthenticated", "it does not cover postern-context"},
		"a header changed":    {change(right("Idempotency-Key: a"), "Idempotency-Key", "a", "b"), "unauthenticated", "it does not hold"},
		"no signature":        {change(right(), "Signature", "", "-"), "bad_signature_input", "Signature"},
		"a parameter twice":   {change(right(), "Signature-Input", ";nonce", ";created=1;nonce"), "bad_signature_input", "twice"},
		"a component twice":   {change(right(), "Signature-Input", `"@method"`, `"@method" "@method"`), "bad_signature_input", "twice"},
		"a flag":              {change(right(), "Signature-Input", `"@method"`, `"@method";req`), "bad_signature_input", "parameter req"},
		"no created":          {change(right(), "Signature-Input", ";created", ";made"), "unauthenticated", "it does not hold"},
		"another nonce":       {change(right(), "Signature-Input", `nonce="`, `nonce="A`), "unauthenticated", "it does not hold"},
		"no list":             {with(nil, "Signature-Input: a", "Signature: a=:AAAA:"), "bad_signature_input", "no list of components"},
		"not even text":       {with(nil, "Signature-Input: ((", "Signature: a=:AAAA:"), "bad_signature_input", "RFC 8941"},
	} {
		want := 401
		if c.code == "bad_signature_input" {
			want = 400
		}
		a := d.call("POST", path, body, c.headers...)
		if a.status != want || a.str("code") != c.code || !strings.Contains(a.str("detail"), c.says) {
			t.Errorf("%s: %d %s", name, a.status, a.raw)
		}
	}
	for says, off := range map[string]time.Duration{"created 6m": 6 * time.Minute, "created 5m59s": 6*time.Minute - time.Second} {
		a := d.call("POST", path, body, d.signedAt(time.Now().Add(off), d.url, key, "POST", path, body)...)
		if s := a.str("detail"); !strings.Contains(s, "ahead") || !strings.Contains(s, "created 6m0s") && !strings.Contains(s, "created 5m5") {
			t.Errorf("%s: it does not say by how much the clock is off: %s", says, s)
		}
	}
	if a := d.want(200, "GET", "/transactions", "", root, "Postern-Context: shop"); len(a.body["items"].([]any)) != 0 {
		t.Errorf("something was stored: %s", a.raw)
	}
	for _, fine := range [][]string{at(50 * time.Second), at(-4 * time.Minute), right(), right("Idempotency-Key: k", "Postern-Context: shop")} {
		d.want(201, "POST", path, body, fine...)
	}
}

// A nonce is used once, by whichever process, and only by what holds.
func TestANonceIsUsedOnceOverAllProcesses(t *testing.T) {
	d, root := closedDoor(t)
	key := drawn(t)
	ann := d.want(201, "POST", "/actors", fmt.Sprintf(`{"public_keys": [%q]}`, public(key)), root).str("id")
	var second *door
	second = doorTo(t, d.store, func(c *httpapi.Config) { c.Auth, c.PublicURL = "required", d.url })
	path := "/actors/" + ann
	headers := d.signed(key, "GET", path, "")
	d.refused(401, "unauthenticated", "GET", path+"?x=1", "", headers...) // does not hold: the nonce is free
	d.want(200, "GET", path, "", headers...)
	d.refused(401, "replayed_signature", "GET", path, "", headers...)
	second.refused(401, "replayed_signature", "GET", path, "", headers...)
	second.want(200, "GET", path, "", d.signed(key, "GET", path, "")...)
	var rows int
	if err := d.store.Pool().QueryRow(t.Context(), `SELECT count(*) FROM postern.nonce`).Scan(&rows); err != nil || rows != 2 {
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
	ann := d.want(201, "POST", "/actors", fmt.Sprintf(`{"public_keys": [%q, %q]}`, public(old), public(next)), root).str("id")
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
	d.refused(401, "unauthenticated", "GET", path, "", both(sign("a", d.url+path, old), sign("b", "http://x/", next))...)
	d.refused(401, "unauthenticated", "GET", path, "", both(sign("a", d.url+path, old), sign("b", d.url+path, bob))...)
	// beside another credential, both must name one actor
	d.refused(401, "unauthenticated", "GET", path, "", append(d.signed(old, "GET", path, ""), root)...)
}

// A database that was restored may have lost nonces: what was signed before that holds no more.
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
